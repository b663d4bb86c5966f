"""A Slurm of one node for the session, and a repository whose trainings are short."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.toy_repository import LM, make_repository

REPOSITORY = Path(__file__).resolve().parents[2]
TESTBED = REPOSITORY / "scripts" / "slurm_testbed.sh"
IMPOSSIBLE = 3  # the status of the script where there can be no testbed
PATIENCE = 1500.0  # seconds; a busy machine takes a minute to import what a training needs


class Cluster:
    """The testbed, with what tests ask of it.

    folder: of its configuration and daemons.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
        }
        self.environment.pop("PYTHONPATH", None)

    def run(self, *words: str, cwd: Path = REPOSITORY, **environment: str) -> str:
        """The output of a command that must end well."""
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def states(self) -> dict[str, str]:
        """Of all jobs by name, those that ended some minutes ago too; of a name the latest."""
        lines = self.run("squeue", "-h", "-t", "all", "-o", "%A|%j|%T").splitlines()
        jobs = sorted((int(number), name, state) for number, name, state in map(_split, lines))
        return {name: state for _, name, state in jobs}

    def job(self, name: str) -> dict[str, str]:
        """What scontrol says of the latest job of that name."""
        lines = self.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%A").split()
        shown = self.run("scontrol", "-o", "show", "job", str(max(map(int, lines))))
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def await_state(self, name: str, *states: str) -> str:
        """Wait until a job is in one of these states."""
        self.wait(lambda: self.states().get(name) in states, f"{name} to be {' or '.join(states)}")
        return self.states()[name]

    def wait(self, is_so: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not is_so():
            assert time.monotonic() < end, f"waited for {what}:\n{self.run('squeue', '-t', 'all')}"
            time.sleep(0.5)

    def await_all(self, patience: float = PATIENCE) -> dict[str, str]:
        """Wait until no job runs or can run any more; how they ended."""

        def is_over() -> bool:
            return not self.run("squeue", "-h", "-o", "%A").split()

        self.wait(is_over, "all jobs to end", patience)
        return self.states()

    def status(self, root: Path) -> dict[str, Mapping[str, Any]]:
        """What `status --json` says, by the name of the run."""
        command = [sys.executable, "-m", "fairseq_plugins", "status", "--json"]
        done = subprocess.run(
            command, cwd=root, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        return {f"{one['table']} {one['name']}": one for one in json.loads(done.stdout)["runs"]}


def _split(line: str) -> list[str]:
    return line.split("|")


@contextmanager
def running_testbed(folder: Path) -> Iterator[Cluster]:
    """A Slurm in a new folder while this lasts."""
    up = subprocess.run([TESTBED, "up", folder], capture_output=True, text=True)
    try:
        if up.returncode == IMPOSSIBLE:
            pytest.skip(up.stderr.strip())
        assert up.returncode == 0, up.stderr
        yield Cluster(folder)
    finally:
        subprocess.run([TESTBED, "down", folder], check=False, capture_output=True)


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_testbed(tmp_path_factory.mktemp("cluster") / "testbed") as cluster:
        yield cluster


@pytest.fixture
def empty_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A testbed of one's own, which lists no jobs of other tests."""
    with running_testbed(tmp_path / "testbed") as cluster:
        yield cluster


@pytest.fixture
def cluster(testbed: Cluster) -> Iterator[Cluster]:
    """The testbed without jobs of another test."""
    yield testbed
    names = testbed.run("squeue", "-h", "-o", "%A").split()
    if names:
        testbed.run("scancel", *names)
    testbed.await_all()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data and the files of a repository with short trainings."""
    root = tmp_path_factory.mktemp("made")
    scale = {"optimization": {"max_update": 240}, "lr_scheduler": {"warmup_updates": 10}}
    make_repository(root, {"lm/toy.yaml": scale}, [LM])
    shutil.copytree(REPOSITORY / "scripts", root / "scripts")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Such a repository of one's own."""
    return copy_of(made, tmp_path / "repository")


def copy_of(made: Path, root: Path) -> Path:
    for name in ("configs", "fairseq_plugins", "scripts", "data"):
        shutil.copytree(made / name, root / name)
    return root


def training_for(root: Path, updates: int) -> Path:
    """A repository in which fairseq itself saves at the end alone."""
    path = root / "configs" / "scale" / "lm" / "toy.yaml"
    scale = yaml.safe_load(path.read_text())
    scale["optimization"]["max_update"] = updates
    scale["checkpoint"].update(save_interval=100_000, save_interval_updates=100_000)
    path.write_text("# @package _global_\n" + yaml.safe_dump(scale))
    return root


def log_of(root: Path) -> str:
    """What the training of `base` under linear attention has logged so far."""
    path = root / "checkpoints" / "table2" / "toy" / "base-linear-s1" / "train.log"
    return path.read_text() if path.is_file() else ""
