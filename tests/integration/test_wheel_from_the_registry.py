"""The wheel with what its extras ask for, from the registry, in an environment of nothing else.

Minutes for each Python, and several GB of CUDA packages where torch has no build for the CPU.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.wheels import ROOT, build_wheel

PYTHONS = ("3.11", "3.12", "3.13")
ROW = ("--scale", "toy", "--rows", "rope", "--attention", "linear")
SENTENCES = ["--train-sentences", "2000", "--valid-sentences", "200", "--test-sentences", "200"]
Command = Callable[..., str]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(10800)]


def interpreter(version: str) -> str | None:
    """A Python of that version which makes environments, from the PATH or pyenv."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [*installed.glob(f"{version}.*/bin/python"), shutil.which(f"python{version}")]
    ask = f"import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for path in [sys.executable, *map(str, filter(None, found))]:
        if subprocess.run([path, "-c", ask], capture_output=True, check=False).returncode == 0:
            return path
    return None


def words_of_pip(wheel: Path) -> list[str]:
    """Everything as the extras say, but torch as it is pinned: the build that may be at hand."""
    (torch,) = re.findall(r"^torch==\S+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    return ["install", "-q", torch, f"{wheel}[train,report]"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=PYTHONS)
def run(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    """A command of a new environment in an empty folder, which must succeed; what it printed."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"there is no Python {request.param} here")
    around = tmp_path_factory.mktemp(f"python{request.param}")
    environment, empty = around / "environment", around / "empty"
    empty.mkdir()
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def command(*words: str, seconds: float = 1800) -> str:
        done = subprocess.run(
            words,
            cwd=empty,
            env={**kept, "PATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}"
        return done.stdout

    command(python, "-m", "venv", str(environment))
    command("python", "-m", "pip", *words_of_pip(wheel), seconds=3000)
    yield command
    shutil.rmtree(around)  # gigabytes


def test_the_wheel_does_all_that_a_checkout_does(run: Command) -> None:
    assert "Training can run." in run("fairseq-pe", "doctor")
    assert "usage: fairseq-pe compare" in run("fairseq-pe", "compare", "--help")
    run("fairseq-pe", "prepare", "toy", *SENTENCES)
    run("fairseq-pe", "table", "table2", *ROW)
    assert Path(run("realpath", "results/table2/toy/rope-linear-s1.json").strip()).is_file()
    package = run("fairseq-pe", "path").strip()
    by_flags = "--task language_modeling --arch pe_transformer_lm --attention-type linear --cpu "
    by_flags += "--position-encoding lrpe_type2 --tokens-per-sample 16 --decoder-layers 1 "
    by_flags += "--decoder-embed-dim 16 --decoder-attention-heads 2 --decoder-ffn-embed-dim 16 "
    by_flags += "--batch-size 4 --optimizer adam --lr 0.001 --max-update 2 --save-dir flags"
    run("fairseq-train", "data/toy", "--user-dir", package, *by_flags.split())
    configs = run("fairseq-pe", "path", "--configs").strip()
    by_recipe = "--config-name wikitext103_lm scale=toy model=lrpe_type2 optimization.max_update=2"
    words = [*by_recipe.split(), "checkpoint.save_dir=recipe"]
    run("fairseq-hydra-train", "--config-dir", configs, *words)
    for folder in ("flags", "recipe"):
        run("test", "-s", f"{folder}/checkpoint_last.pt")
    run("fairseq-pe", "report")
    run("test", "-s", "site/report/index.html")
