"""Runs side by side that start from the same one: one of them makes it, the others wait."""

import time

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.bert import BERT_CONTINUED_TABLE
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.run_options import RunOptions
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table

START = "bert_start/toy/learned-vanilla-s1"
ROWS = ("rope", "shaw_only", "none")


class Slow(FakeCommands):
    """What all start from takes until the others are there. interrupts: it ends as by Ctrl-C."""

    interrupts = False

    def _train(self, overrides, log):
        if overrides["checkpoint.save_dir"].endswith(START):
            time.sleep(1)
            if self.interrupts:
                raise KeyboardInterrupt
        return super()._train(overrides, log)


def work(root, fake):
    runs = [Run(BERT_CONTINUED_TABLE.name, "toy", row, "vanilla", 1) for row in ROWS]
    planned = [plan_run(root / "configs", run, Devices(0)) for run in runs]
    return run_table(root, planned, RunOptions(jobs=3), launcher=fake)


def test_it_is_made_once(place, capsys):
    fake = Slow(place)
    assert work(place, fake) == 0
    continued = sorted(f"bert_continued/toy/{row}-vanilla-s1" for row in ROWS)
    assert fake.trained[0] == START
    assert sorted(fake.trained[1:]) == continued
    output = capsys.readouterr().out
    for row in ROWS:
        shown = f"{row}-vanilla-s1: pre-training, bert_start learned-vanilla-s1"
        assert output.count(shown) == 1
    assert "waiting for it" not in output  # which is said of other processes


def test_where_it_fails_it_fails_them_all_and_is_not_tried_again(place, capsys):
    fake = Slow(place, failing="learned")
    assert work(place, fake) == 1
    assert fake.trained == [START]
    assert capsys.readouterr().out.count("training ended with status 1\n  log:") == len(ROWS)


@pytest.mark.timeout(60)
def test_those_that_wait_for_it_stop_with_it(place):
    fake = Slow(place)
    fake.interrupts = True
    assert work(place, fake) == 130
    assert fake.trained == []
    fake.interrupts = False
    assert work(place, fake) == 0
    assert fake.trained.count(START) == 1
