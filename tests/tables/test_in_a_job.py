"""In a job of Slurm: what another job was to make is missed and named, and made nowhere else."""

import shutil
import signal
import socket

import pytest
import torch

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_3, TABLE_8
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.run_options import RunOptions
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table


def work(root, table, rows, fake, **options):
    runs = [Run(table.name, "toy", row, "vanilla", 1) for row in rows]
    planned = [plan_run(root / "configs", run, Devices(0)) for run in runs]
    return run_table(root, planned, RunOptions(**options), launcher=fake)


def test_what_failed_before_it_fails_a_run_and_no_other_of_its_job(place, capsys):
    """As in the child of a pack, which begins however its parents ended."""
    fake = FakeCommands(place, failing="base")
    assert work(place, TABLE_8, ["base", "rope"], fake, job=6, jobs=2) == 1
    fake.trained.clear()
    capsys.readouterr()
    assert work(place, TABLE_3, ["base", "rope"], fake, job=7, jobs=2) == 1
    said = capsys.readouterr().out
    missed = "FAILED base-vanilla-s1: it starts from table8 base-vanilla-s1, whose job has left no"
    assert missed in said and "FAILED rope" not in said
    assert fake.trained and all("rope" in folder for folder in fake.trained)


def test_a_checkpoint_that_its_result_lacks_is_made_in_the_job(place):
    """As in a new clone: the result was there when the job was submitted."""
    fake = FakeCommands(place)
    assert work(place, TABLE_8, ["rope"], fake, job=6) == 0
    shutil.rmtree(place / "checkpoints" / "table8")
    fake.trained.clear()
    assert work(place, TABLE_3, ["rope"], fake, job=7) == 0
    assert fake.trained[0] == "table8/toy/rope-vanilla-s1"


def test_what_is_to_take_another_tables_result_trains_nothing(place, capsys):
    fake = FakeCommands(place)
    assert work(place, TABLE_2, ["rope"], fake, job=3, stage="take") == 1
    assert fake.trained == []
    said = capsys.readouterr().out
    assert "the job of the same run in another table has left no result" in said


@pytest.mark.parametrize(("words", "asked"), [(["--jobs", "2", "--gpus", "2"], 4), ([], 8)])
def test_without_its_gpus_a_job_names_its_node(place, monkeypatch, capsys, words, asked):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    words = words or ["--gpus", "8"]
    rows = ["--rows", "base,rope", "--attention", "linear"]
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["table2", "--scale", "toy", *rows, *words, "--srun"], place)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"node {socket.gethostname()} must have {asked} GPUs, but PyTorch finds 3" in said
