"""`--missing-checkpoints`: models of results that came without them; the results stay."""

import re

import pytest
import torch

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.papers.bert import BERT_PROPERTIES_TABLE
from fairseq_plugins.papers.lrpe import TABLE_3, TABLE_8
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import lacks_checkpoint
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table

PRETRAINED = "table8/toy/rope-vanilla-s1"
TUNED = [f"table3/toy/rope-vanilla-s1/{task}-lr0.001" for task in ("Order", "Place")]


def plan_one(place, table: Table, row: str) -> PlannedRun:
    return plan_run(place / "configs", Run(table.name, "toy", row, "vanilla", 1), Devices(0))


def work(
    place, table: Table, row: str, fake: FakeCommands, *, force=False, status=0, **options
) -> PlannedRun:
    planned = plan_one(place, table, row)
    found = run_table(place, [planned], RunOptions(force=force, **options), launcher=fake)
    assert found == status
    return planned


def remove(place, pattern: str) -> None:
    for path in (place / "checkpoints").rglob(pattern):
        path.unlink()


def test_models_are_trained_again_and_their_results_stay(place, capsys):
    one = work(place, TABLE_3, "rope", FakeCommands(place, scores={"Order": 90.0}), keep="tuned")
    before = {path: path.read_text() for path in (place / "results").rglob("*.json")}
    remove(place, "*.pt")
    assert lacks_checkpoint(place, one, "tuned")
    capsys.readouterr()
    fake = FakeCommands(place, scores={"Order": 80.0})
    work(place, TABLE_3, "rope", fake, keep="tuned", missing_checkpoints=True)
    assert fake.trained == [PRETRAINED, *TUNED]
    assert {path: path.read_text() for path in before} == before
    assert not lacks_checkpoint(place, one, "tuned")
    said = capsys.readouterr().out
    told = re.search(r"made again, .*65\.00; results/table3/toy/rope\S+ stays, with .*70\.00", said)
    assert told is not None
    again = FakeCommands(place)
    work(place, TABLE_3, "rope", again, keep="tuned", missing_checkpoints=True)
    assert again.trained == again.measured == []


def test_a_result_stays_where_making_its_model_again_failed(place):
    one = work(place, TABLE_8, "rope", FakeCommands(place))
    before = (place / one.run.result).read_text()
    remove(place, "*.pt")
    failing = FakeCommands(place, failing="rope")
    work(place, TABLE_8, "rope", failing, missing_checkpoints=True, status=1)
    fake = FakeCommands(place)
    work(place, TABLE_8, "rope", fake)
    assert fake.trained == []
    work(place, TABLE_8, "rope", fake, missing_checkpoints=True)
    assert fake.trained == [PRETRAINED] and (place / one.run.result).read_text() == before


@pytest.mark.parametrize("goes_on", [{}, {"missing_checkpoints": True}])
def test_a_result_that_is_being_replaced_does_not_stay(place, goes_on):
    one = work(place, TABLE_8, "rope", FakeCommands(place))
    before = (place / one.run.result).stat().st_mtime_ns
    work(place, TABLE_8, "rope", FakeCommands(place, failing="rope"), force=True, status=1)
    assert (place / one.run.result).stat().st_mtime_ns == before
    work(place, TABLE_8, "rope", FakeCommands(place), **goes_on)
    assert (place / one.run.result).stat().st_mtime_ns != before


def test_a_forced_row_leaves_the_result_of_what_it_starts_from(place):
    one = work(place, TABLE_3, "rope", FakeCommands(place))
    before = (place / one.pretraining.run.result).read_text()
    remove(place, "*.pt")
    failing = FakeCommands(place, failing="rope")
    work(place, TABLE_3, "rope", failing, force=True, status=1)
    fake = FakeCommands(place)
    work(place, TABLE_3, "rope", fake, force=True)
    assert fake.trained == [PRETRAINED, *TUNED]
    assert (place / one.pretraining.run.result).read_text() == before


def test_fine_tuned_models_are_missed_where_they_are_to_stay_alone(place):
    one = work(place, TABLE_3, "rope", FakeCommands(place))
    assert not lacks_checkpoint(place, one, "all")
    assert lacks_checkpoint(place, one, "tuned")
    fake = FakeCommands(place)
    work(place, TABLE_3, "rope", fake, keep="tuned", missing_checkpoints=True)
    assert fake.trained == TUNED  # although their numbers are in the run's folder


def test_half_a_training_is_no_checkpoint(place):
    one = work(place, TABLE_3, "rope", FakeCommands(place))
    assert one.pretraining is not None
    assert not lacks_checkpoint(place, one.pretraining, "all")
    last = place / one.pretraining.run.folder / "checkpoint_last.pt"
    torch.save({"model": {}, "optimizer_history": [{"num_updates": 5}]}, last)
    assert lacks_checkpoint(place, one.pretraining, "all")


def test_what_a_figure_is_of_counts_as_one(place):
    one = work(place, BERT_PROPERTIES_TABLE, "rope", FakeCommands(place))
    path = place / one.run.result
    before = path.read_text()
    assert not lacks_checkpoint(place, one, "all")
    remove(place, "attention.npy")
    assert lacks_checkpoint(place, one, "all")
    fake = FakeCommands(place, scores={"monotonicity_20": 0.5})
    work(place, BERT_PROPERTIES_TABLE, "rope", fake, missing_checkpoints=True)
    assert fake.trained == [] and len(fake.measured) == 1
    assert path.read_text() == before
    assert not lacks_checkpoint(place, one, "all")


def test_without_the_option_a_result_is_enough(place):
    work(place, TABLE_3, "rope", FakeCommands(place))
    remove(place, "*.pt")
    fake = FakeCommands(place)
    work(place, TABLE_3, "rope", fake)
    assert fake.trained == []


@pytest.mark.parametrize("other", ["--force", "--slurm"])
def test_what_contradicts_it_is_refused(place, other, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["table2", "--scale", "toy", "--missing-checkpoints", other], place)
    assert stop.value.code == 2
    assert f"must be left out with `{other}`" in capsys.readouterr().err


def test_the_command_counts_what_is_here_and_makes_no_more(place, capsys):
    work(place, TABLE_3, "rope", FakeCommands(place))
    words = ["table3", "--scale", "toy", "--rows", "rope", "--attention", "vanilla"]
    assert main([*words, "--missing-checkpoints"], place) == 0
    assert "With result and checkpoint: 1 of 1 runs" in capsys.readouterr().out
