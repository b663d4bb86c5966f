"""Jobs on a real Slurm: they end, wait, fail, and say so."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.slurm.conftest import Cluster, copy_of, log_of, training_for

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]

ROWS = ("--scale", "toy", "--rows", "base,rope", "--attention", "linear")
JOBS = ("table2-toy-base-linear-s1", "table2-toy-rope-linear-s1")
PAGE = "table2-toy-render"
ONE = ("--scale", "toy", "--rows", "base", "--attention", "linear")
COMPARED = ("valid_loss", "test_loss", "updates")


def metrics(root: Path, name: str) -> dict[str, float]:
    result = yaml.safe_load((root / "results" / "table2" / "toy" / f"{name}.json").read_text())
    return {key: result["metrics"][key] for key in COMPARED}


def test_two_at_once_end_and_are_rendered(cluster: Cluster, root: Path) -> None:
    said = cluster.run("scripts/table2.sh", *ROWS, "--slurm", cwd=root)
    assert all(f"{name}: job " in said for name in (*JOBS, PAGE))
    # At once, since on a busy machine the jobs may be done before a later command has started.
    again = cluster.run("scripts/table2.sh", *ROWS, "--slurm", cwd=root)
    assert all(f"{name}: is in the queue already as job" in again for name in (*JOBS, PAGE))
    for job in JOBS:
        cluster.await_state(job, "RUNNING")
    assert cluster.states()[PAGE] == "PENDING"
    status = cluster.status(root)
    states = [status[f"table2 {name}-linear-s1"]["state"] for name in ("base", "rope")]
    # On a fast machine they may be done before `status` has looked, the first one first.
    assert states in (["running", "running"], ["done", "running"], ["done", "done"])
    assert status["table2 page"]["state"] == "waiting" or states == ["done", "done"]
    ended = cluster.await_all()
    assert {ended[name] for name in (*JOBS, PAGE)} == {"COMPLETED"}
    page = (root / "results" / "table2" / "toy.md").read_text()
    for row in ("base", "rope"):
        found = metrics(root, f"{row}-linear-s1")
        assert found["updates"] == 240
        assert cluster.status(root)[f"table2 {row}-linear-s1"]["state"] == "done"
        assert f"{2 ** found['test_loss']:.2f}" in page
    assert cluster.status(root)["table2 page"]["state"] == "done"
    assert "done already" in cluster.run("scripts/table2.sh", *ROWS, "--slurm", cwd=root)


def test_a_missing_gpu_fails_the_job_and_those_after_it(cluster: Cluster, root: Path) -> None:
    """Slurm gives a GPU that is none, as a node without its driver does."""
    words = ("--scale", "toy", "--rows", "rope", "--attention", "linear", "--gpus", "1", "--slurm")
    cluster.run("scripts/extrapolation.sh", *words, cwd=root)
    parent, child = "table2-toy-rope-linear-s1", "extrapolation-toy-rope-linear-s1"
    assert cluster.await_state(parent, "FAILED", "COMPLETED") == "FAILED"
    cluster.await_all()
    assert cluster.states()[child] == "CANCELLED"
    status = cluster.status(root)
    failed, cancelled = status["table2 rope-linear-s1"], status["extrapolation rope-linear-s1"]
    assert failed["state"] == "failed"
    assert any("must have 1 GPUs, but PyTorch finds 0" in line for line in failed["lines"])
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", f"after {parent}")
    assert not list(root.glob("checkpoints/table2/toy/*/train.log"))


@pytest.mark.slow
def test_a_checkpoint_that_a_clone_lacks_is_made_by_a_job_of_its_own(
    cluster: Cluster, root: Path
) -> None:
    words = ("--scale", "toy", "--rows", "rope", "--attention", "linear")
    cluster.run("scripts/table2.sh", *words, cwd=root)
    result = metrics(root, "rope-linear-s1")
    shutil.rmtree(root / "checkpoints")
    cluster.run("scripts/extrapolation.sh", *words, "--slurm", cwd=root)
    parent, child = JOBS[1], "extrapolation-toy-rope-linear-s1"
    assert cluster.states()[child] == "PENDING"
    ended = cluster.await_all()
    assert {ended[parent], ended[child]} == {"COMPLETED"}
    assert metrics(root, "rope-linear-s1") == result
    status = cluster.status(root)
    states = [status[f"{table} rope-linear-s1"]["state"] for table in ("table2", "extrapolation")]
    assert states == ["done", "done"]


@pytest.mark.slow
def test_a_warned_job_goes_back_and_on_to_the_same_losses(
    cluster: Cluster, made: Path, tmp_path: Path
) -> None:
    """The signal is the one that Slurm sends before a time limit."""
    limited = training_for(copy_of(made, tmp_path / "limited"), 200)
    free = training_for(copy_of(made, tmp_path / "free"), 200)
    cluster.run("scripts/table2.sh", *ONE, "--slurm", cwd=limited)
    cluster.wait(lambda: losses(limited), "updates")
    cluster.run("scancel", "--batch", "--signal=USR1", cluster.job(JOBS[0])["JobId"])
    cluster.await_state(PAGE, "COMPLETED", "FAILED", "CANCELLED")
    assert cluster.states()[JOBS[0]] == "COMPLETED"
    check_restarts(cluster, limited)
    cluster.run("scripts/table2.sh", *ONE, cwd=free)
    assert metrics(limited, "base-linear-s1") == metrics(free, "base-linear-s1")


@pytest.mark.slow
def test_a_time_limit_changes_nothing(cluster: Cluster, made: Path, tmp_path: Path) -> None:
    """Trainings without end, so that on a machine of any speed the limit comes first."""
    free = training_for(copy_of(made, tmp_path / "free"), 100_000)
    limited = training_for(copy_of(made, tmp_path / "limited"), 100_000)
    # Slurm looks every 30 seconds, and acts 30 early: the signal comes 90 to 120 after the start.
    limit = {"SBATCH_TIMELIMIT": "3", "SBATCH_SIGNAL": "B:USR1@60"}
    cluster.run("scripts/table2.sh", *ONE, "--slurm", cwd=limited, **limit)
    cluster.wait(lambda: '"loss"' in log_of(limited).partition("Loaded checkpoint")[2], "a restart")
    check_restarts(cluster, limited)
    found = losses(limited)
    assert len(found) == len({updates for _, updates, _ in found})  # nothing was trained twice
    cluster.run("scancel", "--name", JOBS[0])  # jobs of one name wait for each other
    cluster.run("scripts/table2.sh", *ONE, "--slurm", cwd=free)
    cluster.wait(lambda: len(losses(free)) >= len(found), "as many updates without a limit")
    assert found == losses(free)[: len(found)]


def losses(root: Path) -> list[tuple[str, ...]]:
    """The loss, the updates and the norm of the gradient in each line of a training's log."""
    line = r'"loss": "([\d.]+)".*"num_updates": "(\d+)".*"gnorm": "([\d.]+)"'
    return re.findall(line, log_of(root))


def check_restarts(cluster: Cluster, root: Path) -> None:
    """It was started anew, and has one log for all stretches, which begin where one ended."""
    restarts = int(cluster.job(JOBS[0])["Restarts"])
    (log,) = root.glob(f"checkpoints/table2/toy/{JOBS[0]}.slurm-*.log")
    said = log.read_text()
    assert restarts >= 1, said
    assert said.count("it goes back into the queue") == restarts
    resumed = re.findall(r"resumed at (\d+)", said)  # in every line of a stretch
    assert len({*resumed}) == restarts, said
