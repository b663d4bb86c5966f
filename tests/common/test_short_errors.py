"""A refusal is a line; everything else keeps its traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.common.short_errors import TRACEBACK
from tests.integration.helpers import REPOSITORY

ROUTES = {
    "hydra": (
        "-m fairseq_cli.hydra_train --config-dir {configs} --config-name wikitext103_lm "
        "model={row} model.attention_type=linear scale=toy run=local common.cpu=true "
        "common.user_dir={package} task.data={data} checkpoint.save_dir={save} hydra.run.dir={save}"
    ),
    "flags": (
        "-m fairseq_cli.train {data} --user-dir {package} --task language_modeling "
        "--arch pe_transformer_lm --attention-type linear --position-encoding {row} --cpu "
        "--batch-size 2 --optimizer adam --tokens-per-sample 8 --save-dir {save}"
    ),
}


def train(
    route: str, tmp_path: Path, row: str, data: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = ROUTES[route].format(
        configs=REPOSITORY / "configs",
        package=REPOSITORY / "fairseq_plugins",
        row=row,
        data=data,
        save=tmp_path / "run",
    )
    return subprocess.run(
        [sys.executable, *words.split()],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "", **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """As far as fairseq looks before it builds a model."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dict.txt").write_text("a 2\nb 1\n")
    return tmp_path / "data"


@pytest.mark.parametrize("route", ROUTES)
def test_a_refused_combination_ends_in_one_line(route: str, data: Path, tmp_path: Path) -> None:
    done = train(route, tmp_path, "t5", data)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "linear attention cannot use the encoding 't5'" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_traceback_can_be_had(data: Path, tmp_path: Path) -> None:
    done = train("flags", tmp_path, "t5", data, **{TRACEBACK: "1"})
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_errors_of_others_keep_their_traceback(data: Path, tmp_path: Path) -> None:
    """The data are missing, which fairseq finds after the model is built."""
    done = train("flags", tmp_path, "rope", data)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr and "Traceback" in done.stderr


def test_a_recipe_without_its_data_names_the_script(tmp_path: Path) -> None:
    done = train("hydra", tmp_path, "rope", Path("data/wikitext-2-mini"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "data/wikitext-2-mini/dict.txt does not exist" in last
    assert "first run `scripts/prepare_wikitext2.sh`" in last


def test_a_recipe_for_gpus_without_one_ends_in_one_line() -> None:
    """As in fairseq's optimizer under `common.fp16=true`."""
    code = (
        "from fairseq_plugins.common.short_errors import shorten_errors; shorten_errors(); "
        "import torch; torch.cuda.current_device()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "PyTorch finds none here" in line and "common.cpu=true common.fp16=false" in line
