"""A refusal is a line; everything else keeps its traceback."""

from subprocess import CompletedProcess

import pytest

from fairseq_plugins.common.short_errors import TRACEBACK
from tests.forks import Command, run_forks
from tests.integration.helpers import REPOSITORY

pytestmark = pytest.mark.slow  # nine commands, each in a process of its own
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


CASES = {  # route, row, data or none for those of the toy, and variables
    "hydra": ("hydra", "t5", None, {}),
    "flags": ("flags", "t5", None, {}),
    "traceback": ("flags", "t5", None, {TRACEBACK: "1"}),
    "others": ("flags", "rope", None, {}),
    "no data": ("hydra", "rope", "data/wikitext-2-mini", {}),
    "choice": ("hydra", "rope model.feature_map=foo", None, {}),
    "number": ("hydra", "rope model.decoder_layers=x", None, {}),
    "key": ("hydra", "rope +model.encoder_layers=1", None, {}),
}
NO_GPU = (
    "from fairseq_plugins.common.short_errors import shorten_errors; shorten_errors(); "
    "import torch; torch.cuda.current_device()"
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CompletedProcess[str]]:
    """How each command ended. Data are there as far as fairseq looks before it builds a model."""
    folder = tmp_path_factory.mktemp("short errors")
    (folder / "data").mkdir()
    (folder / "data" / "dict.txt").write_text("a 2\nb 1\n")
    (folder / "others").touch()  # no folder to save in
    around = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    commands = [Command(("-c", NO_GPU), folder, {**around, "CUDA_VISIBLE_DEVICES": ""})]
    for name, (route, row, data, more) in CASES.items():
        words = ROUTES[route].format(
            configs=REPOSITORY / "configs",
            package=REPOSITORY / "fairseq_plugins",
            row=row,
            data=data or "data",
            save=name.replace(" ", "-"),
        )
        commands.append(Command(words.split(), folder, {**around, **more}))
    return dict(zip(["no GPU", *CASES], run_forks(commands, folder), strict=True))


@pytest.mark.parametrize("route", ROUTES)
def test_a_refused_combination_ends_in_one_line(
    route: str, ended: dict[str, CompletedProcess[str]]
) -> None:
    done = ended[route]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "linear attention cannot use the encoding 't5'" in done.stderr.splitlines()[-1]


def test_the_traceback_can_be_had(ended: dict[str, CompletedProcess[str]]) -> None:
    done = ended["traceback"]
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_errors_of_others_keep_their_traceback(ended: dict[str, CompletedProcess[str]]) -> None:
    done = ended["others"]
    assert done.returncode == 1
    assert "NotADirectoryError" in done.stderr and "Traceback" in done.stderr


def test_a_recipe_without_its_data_names_the_script(
    ended: dict[str, CompletedProcess[str]],
) -> None:
    done = ended["no data"]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "data/wikitext-2-mini/dict.txt does not exist" in last
    assert "first run `scripts/prepare_wikitext2.sh`" in last


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("choice", "`model.feature_map`: Invalid value 'foo', expected one of [elu, relu, "),
        ("number", "`model.decoder_layers`: Value 'x' of type 'str' could not be converted to Int"),
        ("key", "`model.encoder_layers`: Key 'encoder_layers' not in 'PETransformerLMConfig'. Did"),
    ],
)
def test_an_option_that_its_type_refuses_ends_in_one_line(
    case: str, said: str, ended: dict[str, CompletedProcess[str]]
) -> None:
    done = ended[case]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert said in done.stderr.splitlines()[-1]


def test_a_recipe_for_gpus_without_one_ends_in_one_line(
    ended: dict[str, CompletedProcess[str]],
) -> None:
    """As in fairseq's optimizer under `common.fp16=true`."""
    done = ended["no GPU"]
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "PyTorch finds none here" in line and "common.cpu=true common.fp16=false" in line
