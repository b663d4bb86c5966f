"""The image's definition names what there is, and its interpreter is called as it must be.

Nothing here builds the image: that needs Apptainer and the internet.
"""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.experiments.training import SRUN
from fairseq_plugins.runner.launcher import executable
from tests.test_packaging import PROJECT

ROOT = Path(__file__).parents[1]
DEFINITION = (ROOT / "containers" / "fairseq-pe.def").read_text()
PYTHON = ROOT / "containers" / "python.sh"
PLACE = "/opt/fairseq-plugins"


def section(name: str) -> list[str]:
    """The lines of a section of the definition."""
    (found,) = re.findall(rf"^%{name}\n(.*?)(?=^%|\Z)", DEFINITION, re.MULTILINE | re.DOTALL)
    return [line.strip() for line in found.splitlines() if line.strip()]


COPIED = dict(line.split() for line in section("files"))


def test_what_is_copied_is_there() -> None:
    for source, destination in COPIED.items():
        assert (ROOT / source).exists(), source
        assert destination == f"{PLACE}/{source}"


def test_it_copies_what_make_setup_reads() -> None:
    """The requirements that the Makefile's rules of the environment name, and the package."""
    rules = (ROOT / "Makefile").read_text().partition("\n$(RUNTIME):")[2].replace("$(LOCK)", "lock")
    named = set(re.findall(r"requirements[\w-]*\.(?:txt|lock)", rules))
    assert named and named <= COPIED.keys()
    assert {"Makefile", "setup.py", "README.md", "fairseq_plugins", "configs"} <= COPIED.keys()
    assert "make setup PYTHON=python3" in section("post")
    assert f"cd {PLACE}" in section("post")


def test_its_python_is_one_that_the_package_supports() -> None:
    (version,) = re.findall(r"^From: python:(\d+\.\d+)-", DEFINITION, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with sbatch, and an Apptainer that prints what it is told."""
    for name, text in {
        "apptainer": 'printf "%s\\n" "$@" "outside=$FAIRSEQ_PE_PYTHON"',
        "sbatch": "true",
    }.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "pe.sif").touch()
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    return {"PATH": path, "FAIRSEQ_PE_IMAGE": str(tmp_path / "pe.sif")}


def call(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, *words], env=environment, capture_output=True, text=True)


def binds(said: list[str]) -> list[str]:
    return [said[i + 1] for i, word in enumerate(said) if word == "--bind"]


def test_the_interpreter_runs_in_the_image_with_slurm(machine: dict[str, str]) -> None:
    done = call({**machine, "FAIRSEQ_PE_BIND": "/opt/slurm,/scratch"}, "-c", "two words")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    image = said.index(machine["FAIRSEQ_PE_IMAGE"])
    assert said[:2] == ["exec", "--nv"]
    assert said[image + 1 : -1] == [f"{PLACE}/.venv/bin/python", "-c", "two words"]
    sbatch = Path(machine["FAIRSEQ_PE_IMAGE"]).parent / "bin" / "sbatch"
    places = binds(said)
    assert {str(ROOT), "/etc/passwd", f"{sbatch}:/usr/local/bin/sbatch"} <= {*places}
    assert places[-1] == "/opt/slurm,/scratch"
    # Apptainer refuses to start where a place is missing.
    assert all(Path(place.partition(":")[0]).exists() for place in places[:-1])
    assert said[-1] == f"outside={PYTHON}"


def test_what_srun_starts_finds_the_machine_s_commands(machine: dict[str, str]) -> None:
    """There PATH is that of the image, which srun was called in."""
    inside = {**machine, "FAIRSEQ_PE_PATH": machine["PATH"], "PATH": "/usr/bin:/bin"}
    assert call(inside).stdout == call(machine).stdout


def test_without_an_image_it_says_so(machine: dict[str, str]) -> None:
    done = call({**machine, "FAIRSEQ_PE_IMAGE": "none.sif"})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "FAIRSEQ_PE_IMAGE must be an image" in done.stderr and "'none.sif'" in done.stderr


def test_srun_starts_the_interpreter_that_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["fairseq-hydra-train", "model=rope"]
    monkeypatch.setenv("FAIRSEQ_PE_PYTHON", str(PYTHON))
    assert executable([*SRUN, *command])[len(SRUN)] == str(PYTHON)
    assert executable(command)[0] == sys.executable
    monkeypatch.delenv("FAIRSEQ_PE_PYTHON")
    assert executable([*SRUN, *command])[len(SRUN)] == sys.executable


def test_it_can_be_executed() -> None:
    assert os.access(PYTHON, os.X_OK)
