"""A job whose time is over: its training saves, it goes back into the queue, and later on."""

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from unittest.mock import Mock

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records import results
from fairseq_plugins.runner import interruption, preflight, run_execution, slurm_queue
from fairseq_plugins.runner.interruption import STOP
from fairseq_plugins.runner.journal import Journal
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.run_options import RunOptions
from tests.tables.fake_fairseq import TRAINING_JOB, FakeFairseq, run_table, save

TOY = LANGUAGE_MODEL.scales["toy"]


class Warned(FakeFairseq):
    """Slurm warns its first training, which saves after so many updates when it is asked to."""

    def __init__(self, root, updates, is_deaf=False):
        super().__init__(root)
        self.updates, self.is_deaf, self.modules = updates, is_deaf, []

    def __call__(self, command, log, on_lines, keep_open=()):
        self.modules.append(command[2])
        if command[2] != TRAINING_JOB:
            return super().__call__(command, log, on_lines, keep_open)
        os.kill(os.getpid(), signal.SIGUSR1)
        stop = log.with_name(STOP)
        while self.is_deaf or not stop.exists():
            on_lines([])
            time.sleep(0.01)
        if self.updates:
            save(log.parent, self.updates, ["checkpoint_last.pt"])
        return 0


def plan_rows(configs, *rows):
    planned, _ = plan(
        configs, TABLE_2, TOY, Devices(0), rows=rows, attentions=["linear"], seeds=[1]
    )
    return planned


@pytest.fixture
def one(configs):
    return plan_rows(configs, "rope")[0]


@pytest.fixture
def requeued(monkeypatch):
    """The commands that were given to Slurm."""
    found = []

    def run(command, **_):
        found.append(command)
        return types.SimpleNamespace(returncode=0, stdout="", stderr="")

    own = types.SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(slurm_queue, "subprocess", own)
    return found


def work(root, one, fake, **more):
    return run_table(root, [one], RunOptions(**more), launcher=fake)


def test_it_saves_goes_back_and_on(root, one, requeued):
    fake = Warned(root, 70)
    assert work(root, one, fake, job=12) == 0
    assert requeued == [["scontrol", "requeue", "12"]]
    assert fake.evaluated == [] and not (root / one.run.result).exists()
    assert not (root / one.run.folder / STOP).exists()
    again = FakeFairseq(root)
    assert work(root, one, again, job=12) == 0
    assert again.trained == [("rope-linear-s1", 70)] and len(requeued) == 1
    assert results.read_result(root / one.run.result, LANGUAGE_MODEL.metrics) is not None


class WarnedInRope(Warned):
    """Slurm warns the training of one row of a job."""

    def __call__(self, command, log, on_lines, keep_open=()):
        row = Warned if "model=rope" in command else FakeFairseq
        return row.__call__(self, command, log, on_lines, keep_open)


def test_what_it_has_made_it_does_not_make_again(root, configs, requeued):
    """`--force` is among the words of a job also after it went back into the queue."""
    planned = plan_rows(configs, "base", "rope")

    def forced(fake, job):
        work = run_table(root, planned, RunOptions(force=True, job=job), launcher=fake)
        assert work == 0
        return fake.trained

    names = [one.run.name for one in planned]
    assert forced(FakeFairseq(root), 11) == [(name, 0) for name in names]
    assert forced(WarnedInRope(root, 70), 12) == [(names[0], 0)]
    assert requeued == [["scontrol", "requeue", "12"]]
    assert forced(FakeFairseq(root), 12) == [(names[1], 70)]
    assert forced(FakeFairseq(root), 12) == []
    assert forced(FakeFairseq(root), 13) == [(name, 0) for name in names]


def test_a_forced_one_that_cannot_go_back_says_how_to_go_on(
    root, configs, one, monkeypatch, capsys
):
    work(root, one, FakeFairseq(root))

    def refuse(words):
        raise slurm_queue.NoSlurm("scontrol does not answer")

    monkeypatch.setattr(slurm_queue, "_ask", refuse)
    options = RunOptions(force=True, job=12)
    assert run_table(root, [one], options, Warned(root, 70)) == 1
    said = capsys.readouterr().out
    assert "Submitting again without --force goes on from the last checkpoint.\n" in said


def test_one_that_came_no_further_does_not_come_back(root, one, requeued, capsys):
    assert work(root, one, Warned(root, 0), job=12) == 1
    assert requeued == []
    assert "the time limit of job 12 ends before its first update" in capsys.readouterr().out


def test_one_that_does_not_stop_is_ended(root, one, requeued, monkeypatch):
    monkeypatch.setattr(interruption, "SAVING_SECONDS", 0.2)
    assert work(root, one, Warned(root, 0, is_deaf=True), job=12) == 1
    assert requeued == []


def test_outside_a_job_it_is_a_stop(root, one, requeued, capsys):
    class Signalled(FakeFairseq):
        def _train(self, overrides, log, on_lines):
            os.kill(os.getpid(), signal.SIGUSR1)
            return super()._train(overrides, log, on_lines)

    assert work(root, one, Signalled(root)) == 138
    assert requeued == []


def test_a_job_whose_runs_have_ended_does_not_fail_at_the_signal():
    """As while it renders its page: the jobs after it would be cancelled."""
    code = "import os; from fairseq_plugins.runner.interruption import *\n"
    code += "signal.signal(signal.SIGUSR1, signal.SIG_DFL)\n"  # whatever this process inherits
    code += "hold_back_signals()\n"
    code += "with Interruption().on_signals(): pass\n"
    code += "os.kill(os.getpid(), signal.SIGUSR1)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_job_trains_and_another_measures(root, one):
    training, measuring = FakeFairseq(root), FakeFairseq(root)
    folder = root / one.run.folder
    assert work(root, one, training, job=1, stage="train") == 0
    assert training.evaluated == [] and not (root / one.run.result).exists()
    hardware = Journal.read(folder).hardware
    assert work(root, one, measuring, job=2, stage="evaluate") == 0
    assert measuring.trained == [] and len(measuring.evaluated) == 2
    result = results.read_result(root / one.run.result, LANGUAGE_MODEL.metrics)
    assert result["hardware"] == hardware


def test_what_was_not_trained_to_its_end_is_not_measured(root, one, capsys):
    assert work(root, one, FakeFairseq(root), job=2, stage="evaluate") == 1
    assert "there is no training to measure" in capsys.readouterr().out
    fake = FakeFairseq(root, stop_at=100)
    assert work(root, one, fake, job=1, stage="train") == 130
    assert work(root, one, FakeFairseq(root), job=2, stage="evaluate") == 1
    assert "its training ended after 100 of 250 updates" in capsys.readouterr().out


def test_without_its_last_checkpoint_a_measured_run_stays_measured(root, one):
    assert work(root, one, FakeFairseq(root), keep="best") == 0
    assert [p.name for p in (root / one.run.folder).glob("*.pt")] == ["checkpoint_best.pt"]
    (root / one.run.result).unlink()
    again = FakeFairseq(root)
    assert work(root, one, again) == 0
    assert again.trained == [] and len(again.evaluated) == 2


def test_a_run_that_is_killed_before_its_result_has_deleted_what_is_not_kept(
    root, one, monkeypatch
):
    """With its result it would be done, and its checkpoints would all stay."""
    with monkeypatch.context() as patch:
        patch.setattr(run_execution, "write_result", Mock(side_effect=KeyboardInterrupt))
        assert work(root, one, FakeFairseq(root), keep="best") == 130
    assert [p.name for p in (root / one.run.folder).glob("*.pt")] == ["checkpoint_best.pt"]
    again = FakeFairseq(root)
    assert work(root, one, again) == 0
    assert again.trained == [] and (root / one.run.result).is_file()


def test_a_run_that_is_killed_while_deleting_is_not_trained_again(root, one, monkeypatch):
    names, glob, unlink = [], Path.glob, Path.unlink

    def killed(path, missing_ok=False):
        names.extend([path.name] if path.suffix == ".pt" else [])
        if len(names) > 3:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        # In an order as of a disk: the last checkpoint, and then those of 50 and 250 updates.
        patch.setattr(Path, "glob", lambda *words: sorted(glob(*words), reverse=True))
        assert work(root, one, FakeFairseq(root), keep="best") == 130
    assert len(names) == 4
    again = FakeFairseq(root)
    assert work(root, one, again) == 0
    assert again.trained == [] and (root / one.run.result).is_file()
    assert [p.name for p in (root / one.run.folder).glob("*.pt")] == ["checkpoint_best.pt"]


def test_a_forced_run_that_is_killed_before_its_result_replaces_the_earlier_one(
    root, one, monkeypatch
):
    assert work(root, one, FakeFairseq(root)) == 0
    earlier = (root / one.run.result).stat().st_mtime
    with monkeypatch.context() as patch:
        patch.setattr(run_execution, "write_result", Mock(side_effect=KeyboardInterrupt))
        assert work(root, one, FakeFairseq(root), force=True) == 130
    again = FakeFairseq(root)
    assert work(root, one, again) == 0
    assert again.trained == [] and len(again.evaluated) == 2
    assert (root / one.run.result).stat().st_mtime > earlier
    idle = FakeFairseq(root)
    assert work(root, one, idle) == 0 and idle.evaluated == []


@pytest.mark.parametrize(
    ("gpus", "available", "only_measures", "given", "is_fine"),
    [
        (0, 0, False, None, True),
        (8, 8, False, None, True),
        (16, 8, False, None, True),
        (8, 7, False, None, False),
        (4, 8, False, None, False),  # fairseq would take all
        (1, 0, False, None, False),
        (8, 1, True, "1", True),
        (8, 0, True, "1", False),
        (8, 0, True, None, True),  # submitted without one: another table's result is taken
    ],
)
def test_a_node_without_its_gpus(gpus, available, only_measures, given, is_fine, monkeypatch):
    monkeypatch.delenv("SLURM_GPUS_ON_NODE", raising=False)
    if given:
        monkeypatch.setenv("SLURM_GPUS_ON_NODE", given)
    if is_fine:
        preflight.check_node(gpus, available, only_measures=only_measures)
        return
    with pytest.raises(ValueError, match=f"must have .* GPUs, but PyTorch finds {available}"):
        preflight.check_node(gpus, available, only_measures=only_measures)
