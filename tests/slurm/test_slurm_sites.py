"""What happens to jobs on a busy site: preemption, drained nodes, scancel, sweeps, whole papers."""

import json
import random
import re
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
import torch

from tests.integration.toy_repository import GLUE, LM, MLM, MT, make_repository
from tests.slurm.conftest import REPOSITORY, TESTBED, Cluster, copy_of, log_of, training_for

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(7200)]

ONE = ("--scale", "toy", "--rows", "base", "--attention", "linear", "--slurm")
JOB = "table2-toy-base-linear-s1"
KILLS, RUNS = 10, 16  # of the whole paper


def test_for_a_higher_partition_a_job_steps_back_and_goes_on(
    cluster: Cluster, made: Path, tmp_path: Path
) -> None:
    moved = training_for(copy_of(made, tmp_path / "moved"), 600)
    free = training_for(copy_of(made, tmp_path / "free"), 600)
    cluster.run("scripts/table2.sh", *ONE, cwd=moved)
    cluster.wait(lambda: logged(moved), "updates")
    words = ("sbatch", "-p", "high", "-c", "8", "-J", "urgent", "-o", "/dev/null")
    cluster.run(*words, "--wrap", "sleep 5", cwd=moved)
    cluster.await_state("urgent", "COMPLETED")
    cluster.await_all()
    job = cluster.job(JOB)
    assert (job["JobState"], int(job["Restarts"]) >= 1) == ("COMPLETED", True)
    assert cluster.status(moved)["table2 base-linear-s1"]["state"] == "done"
    cluster.run("scripts/table2.sh", *ONE[:-1], cwd=free)
    assert numbers(moved) == numbers(free)


def test_a_node_that_dies_costs_a_minute_at_most(
    cluster: Cluster, made: Path, tmp_path: Path
) -> None:
    root = training_for(copy_of(made, tmp_path / "repository"), 100_000)
    cluster.run("scripts/table2.sh", *ONE, cwd=root)
    cluster.wait(lambda: trained_for(root) > 70, "updates for more than a minute")
    subprocess.run([TESTBED, "crash", cluster.folder], env=cluster.environment, check=True)
    before = logged(root)
    cluster.wait(lambda: "Loaded checkpoint" in log_of(root), "the training to go on")
    ((number,),) = [re.findall(r"Loaded checkpoint .* @ (\d+) updates", log_of(root))]
    kept = max(when for updates, when in before.items() if updates <= int(number))
    assert int(job_restarts := cluster.job(JOB)["Restarts"]) == 1, job_restarts
    assert (max(before.values()) - kept).total_seconds() < 60


def test_on_a_drained_node_it_waits_and_scancel_ends_it(cluster: Cluster, root: Path) -> None:
    node = cluster.run("sinfo", "-h", "-o", "%n").split()[0]
    drain = ("scontrol", "update", f"nodename={node}")
    cluster.run(*drain, "state=drain", "reason=test")
    try:
        cluster.run("scripts/table2.sh", *ONE, cwd=root)
        time.sleep(5)
        waiting = cluster.status(root)["table2 base-linear-s1"]
        assert waiting["state"] == "waiting" and waiting["reason"] not in ("", "None")
    finally:
        cluster.run(*drain, "state=resume")
    cluster.await_state(JOB, "RUNNING")
    cluster.run("scancel", str(cluster.job(JOB)["JobId"]))
    cluster.await_all()
    assert cluster.status(root)["table2 base-linear-s1"]["state"] in ("failed", "cancelled")
    cluster.run("scripts/table2.sh", *ONE, cwd=root)
    cluster.await_all()
    assert cluster.status(root)["table2 base-linear-s1"]["state"] == "done"


def test_submitit_sweeps_over_rows(cluster: Cluster, root: Path) -> None:
    words = ["-m", "--config-dir", "configs", "--config-name", "wikitext103_lm", "scale=toy"]
    words += ["model=rope,lrpe_type2", "model.attention_type=linear", "optimization.max_update=3"]
    words += ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=low"]
    words += ["hydra.launcher.timeout_min=20", "hydra.launcher.cpus_per_task=1"]
    words += ["hydra.launcher.mem_gb=null", "hydra.launcher.nodes=1"]
    words += ["hydra.launcher.max_num_timeout=3"]
    command = [sys.executable, "-m", "fairseq_cli.hydra_train", *words]
    subprocess.run(command, cwd=root, env=cluster.environment, check=True, timeout=900)
    found = sorted((root / "checkpoints" / "wikitext103_lm").glob("toy/**/checkpoint_last.pt"))
    states = [torch.load(path, weights_only=True) for path in found]
    encodings = [state["cfg"]["model"]["position_encoding"] for state in states]
    assert sorted(encodings) == ["lrpe_type2", "rope"]
    assert all(state["optimizer_history"][-1]["num_updates"] == 3 for state in states)


def logged(root: Path) -> dict[int, datetime]:
    """When fairseq logged which update."""
    found = re.findall(r"^\[?([-\d]+ [:\d]+).*\"num_updates\": \"(\d+)\"", log_of(root), re.M)
    return {int(updates): datetime.fromisoformat(when) for when, updates in found}


def trained_for(root: Path) -> float:
    """Seconds from the first logged update to the last."""
    times = logged(root).values()
    return (max(times) - min(times)).total_seconds() if times else 0.0


@pytest.fixture(scope="session")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the data of all tables of a paper, and trainings of some seconds."""
    root = tmp_path_factory.mktemp("paper")
    short = {"optimization": {"max_update": 40}, "lr_scheduler": {"warmup_updates": 10}}
    scales = {f"{name}/toy.yaml": short for name in ("lm", "mlm", "mt")}
    make_repository(root, scales, [LM, MLM, GLUE, MT])
    shutil.copytree(REPOSITORY / "scripts", root / "scripts")
    shutil.copytree(REPOSITORY / "benchmarks", root / "benchmarks")
    return root


def numbers(root: Path) -> dict[str, dict[str, float]]:
    """The metrics of all results but times."""
    timed = ("train_seconds", "tokens_per_second")
    return {
        str(path.relative_to(root)): {
            key: value
            for key, value in json.loads(path.read_text())["metrics"].items()
            if key not in timed
        }
        for path in root.glob("results/table*/toy/*.json")
    }


def disturb(cluster: Cluster, rng: random.Random, jobs: int) -> None:
    """Ten kills from the first job to the last: most as preemption, two as a node that dies.

    In their middle slurmctld is started anew.
    """
    for kill in range(KILLS):
        ended = kill * jobs // (KILLS + 1)  # that many are over before it
        while not _kill_one(cluster, rng, ended, with_node=kill in (3, 7)):
            time.sleep(1)
        if kill == KILLS // 2:
            subprocess.run(
                [TESTBED, "restart", cluster.folder], env=cluster.environment, check=True
            )


def _kill_one(cluster: Cluster, rng: random.Random, ended: int, *, with_node: bool) -> bool:
    states = cluster.run("squeue", "-h", "-t", "all", "-o", "%T").split()
    assert "FAILED" not in states and "CANCELLED" not in states, cluster.run("squeue", "-t", "all")
    running = cluster.run("squeue", "-h", "-t", "R", "-o", "%A").split()
    if states.count("COMPLETED") < ended or not running:
        return False
    time.sleep(rng.uniform(0, 15))
    command = [TESTBED, "crash", cluster.folder]
    if not with_node:
        command = ["scontrol", "requeue", rng.choice(running)]
    # Of a job that has just ended Slurm says no.
    return subprocess.run(command, env=cluster.environment, check=False).returncode == 0


def test_a_whole_paper_survives_kills(empty_cluster: Cluster, paper: Path, tmp_path: Path) -> None:
    cluster = empty_cluster
    words = ("scripts/paper.sh", "--scale", "toy", "--rows", "base,lrpe_type2")
    alone = shutil.copytree(paper, tmp_path / "alone")
    root = shutil.copytree(paper, tmp_path / "killed")
    cluster.run(*words, "--slurm", cwd=root)
    jobs = len(cluster.states())
    disturb(cluster, random.Random(5), jobs)
    ended = cluster.await_all(patience=5000)
    assert len(ended) == jobs and {*ended.values()} == {"COMPLETED"}, ended
    states = cluster.status(root)
    assert {one["state"] for one in states.values()} == {"done"}, states
    cluster.run(*words, cwd=alone)
    assert numbers(root) == numbers(alone) and len(numbers(root)) == RUNS
    for page in ("table2", "table5", "table8", "table3", "table4"):
        assert (root / "results" / page / "toy.md").is_file()
    assert (root / "results" / "figure2" / "toy.png").is_file()
    for one in (root, alone):
        timings = one / "results" / "table9" / "toy"
        assert (timings / "cpu.md").is_file()
        assert (timings / "cpu" / "lrpe_type2-linear.json").is_file()
    assert not re.search("Traceback", cluster.run("scripts/claims.sh", cwd=root))
