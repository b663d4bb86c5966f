"""What is read from Slurm's queue, here from lines that Slurm 22.05 printed."""

import time

import pytest

from fairseq_plugins.runner.slurm_queue import NoSlurm, read_queue


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Have squeue print lines, of jobs that were submitted in the folder that is returned."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def prints(*lines, script=""):
        (folder / "lines").write_text("".join(f"{line}|{tmp_path}\n" for line in lines))
        command = folder / "squeue"
        asked = '[ "$SLURM_TIME_FORMAT" = %s ] || exit 1'
        command.write_text(f"#!/bin/sh\n{asked}\n{script}\ncat {folder}/lines\n")
        command.chmod(0o755)
        return tmp_path

    return prints


def test_a_job_that_goes_back_into_the_queue_has_not_ended(squeue):
    """Slurm calls it COMPLETING as it does those that ended, while a node cleans up."""
    now = int(time.time())
    root = squeue(
        f"11|requeued|COMPLETING|None|{now + 300}",
        "1|requeued without a limit|COMPLETING|None|NONE",
        f"14|held|COMPLETING|job requeued in held state|{now + 300}",
        f"13|failed|COMPLETING|NonZeroExitCode|{now - 4}",
        f"3|ended well|COMPLETING|None|{now - 4}",
    )
    found = read_queue(root)
    assert [*found] == ["requeued", "requeued without a limit", "held"]
    assert found["requeued"].number == 11 and all(one.waits for one in found.values())


def test_what_runs_does_not_wait(squeue):
    now = int(time.time())
    root = squeue(
        f"10|urgent|RUNNING|None|{now + 300}",
        "6|preempted|PENDING|Nodes required for job are DOWN, DRAINED or reserved|N/A",
    )
    found = read_queue(root)
    assert not found["urgent"].waits
    assert found["preempted"].waits and "DRAINED" in found["preempted"].reason


def test_a_queue_that_cannot_be_read_says_why(squeue):
    said = "slurm_load_jobs error: Unable\nto contact slurm controller"
    root = squeue(script=f"echo '{said}' >&2; exit 1")
    with pytest.raises(NoSlurm, match="squeue: slurm_load_jobs error: Unable to contact slurm"):
        read_queue(root)
