"""`fairseq-pe pack` of a model of a few updates, measured again from the packed file."""

import json
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.data.prepare import prepare_toy
from fairseq_plugins.records.logs import read_evaluation_loss
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import packing, table_runner
from fairseq_plugins.runner.launcher import PreloadedLauncher, executable
from tests.integration import toy_repository as toy
from tests.preprocessing import preprocess_here

RUN = Run("table2", "toy", "rope", "linear", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    few = {"optimization": {"max_update": 10}, "lr_scheduler": {"warmup_updates": 5}}
    folder = tmp_path_factory.mktemp("repository") / "root"
    return toy.make_repository(folder, {"lm/toy.yaml": few}, ())


@pytest.fixture(scope="module")
def launcher(folder: Path) -> Iterator[PreloadedLauncher]:
    """One process with PyTorch and fairseq imported, from which every command here is forked."""
    launcher = PreloadedLauncher(folder, {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"})
    # Started in this thread, since it ends with the thread of its first command.
    assert launcher([sys.executable, "-m", "platform"], folder / "first.log", lambda _: None) == 0
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def root(folder: Path, launcher: PreloadedLauncher) -> Path:
    """A repository with a row of Table 2, made as `fairseq-pe table` does."""
    counts = {"train": 600, "valid": 60, "test": 60}
    with preprocess_here():
        prepare_toy(folder / "data" / "toy", seed=1, sentences=counts)
    words = ("--scale", "toy", "--rows", "rope", "--attention", "linear", "--jobs", "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_runner, "get_launchers", lambda *_: nullcontext([launcher]))
        assert main(["table2", *words], folder) == 0
    return folder


def _loss(command: str, launcher: PreloadedLauncher, folder: Path) -> float:
    """Run a command of a model card, and return the loss that it prints."""
    log = folder / "measured.log"
    assert launcher(executable(shlex.split(command)), log, lambda _: None) == 0, log.read_text()
    return read_evaluation_loss(log)


@pytest.mark.slow
def test_a_packed_model_has_the_numbers_of_its_result(root, launcher, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    packed = packing.pack(root, packing.plan_pack(root, RUN), tmp_path, launcher, print)
    name = "table2-toy-rope-linear-s1"
    with zipfile.ZipFile(packed) as files:
        assert {Path(file).name for file in files.namelist() if not file.endswith("/")} == {
            "model.pt", "dict.txt", "README.md", "result.json"
        }  # fmt: skip
    card = (tmp_path / name / "README.md").read_text()
    result = json.loads((root / RUN.result).read_text())
    assert result["commit"] in card and "MIT" in card
    shutil.copytree(tmp_path / name, root / name)
    (block,) = re.findall(r"```sh\n(.*?)```", card, re.DOTALL)
    measured = [_loss(line, launcher, tmp_path) for line in block.splitlines()[1:]]
    metrics = result["metrics"]
    assert measured == [metrics["valid_loss"], metrics["test_loss"]]
    shown = re.findall(r"^\| PPL \(\w+\) +\| +([\d.]+) \|$", card, re.MULTILINE)
    assert shown == [f"{metrics['valid_ppl']:.2f}", f"{metrics['test_ppl']:.2f}"]
    own = (root / RUN.folder / "checkpoint_last.pt").stat().st_size
    assert (tmp_path / name / "model.pt").stat().st_size < own / 2
    # Another model under the same result is noticed by its numbers.
    path = root / RUN.folder / "checkpoint_last.pt"
    state = read_checkpoint(path)
    first = next(iter(state["model"]))
    state["model"][first] = torch.zeros_like(state["model"][first])
    torch.save(state, tmp_path / "other.pt")
    shutil.move(tmp_path / "other.pt", path)
    before = packed.read_bytes()
    with pytest.raises(WorkError, match="the checkpoint is of another training"):
        packing.pack(root, packing.plan_pack(root, RUN), tmp_path, launcher, print)
    assert packed.read_bytes() == before and not list(tmp_path.glob(".packing*"))


@pytest.mark.slow
def test_a_run_without_checkpoint_is_refused(root, launcher, tmp_path):
    with pytest.raises(OptionError, match=r"xl-linear-s1 must be trained.* --rows xl "):
        packing.plan_pack(root, Run("table2", "toy", "xl", "linear", 1))
