"""What runs take, against arithmetic done by hand; and what stays of a run's files."""

import math

import pytest

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import checkpoints, cost_estimates, preflight
from tests.tables.conftest import REPOSITORY


def planned(root, table, attention="vanilla", scale="paper", gpus=8):
    run = Run(table, scale, "base", attention, 1)
    return plan_run(REPOSITORY / "configs", run, Devices(gpus))


def test_a_run_of_table_2_is_what_one_counts_by_hand(tmp_path):
    pieces = 50_000 * 128 * 512
    layer = 4 * 512 * 512 + 2 * 512 * 2048
    forward = 2 * (6 * layer + 267_744 * 512) + 6 * 4 * 512 * 512
    found = cost_estimates.cost_of(tmp_path, planned(tmp_path, "table2"))
    assert found.operations == pytest.approx(3 * forward * pieces)
    assert 21 < cost_estimates.hours(found.operations, 40) < 22
    size = 10 * (267_744 * 512 + 6 * layer)  # half precision
    assert (found.rest, found.peak) == (4 * size, 5 * size)  # one more while it is written
    # As many on any number of GPUs, and fewer where attention is linear.
    one = cost_estimates.cost_of(tmp_path, planned(tmp_path, "table2", gpus=1))
    assert one.operations == found.operations
    linear = cost_estimates.cost_of(tmp_path, planned(tmp_path, "table2", "linear"))
    assert linear.operations < found.operations


def test_the_dictionary_counts_where_it_is_there(tmp_path):
    before = cost_estimates.cost_of(tmp_path, planned(tmp_path, "table2"))
    folder = tmp_path / "data" / "wikitext-103"
    folder.mkdir(parents=True)
    (folder / "dict.txt").write_text("word 1\n" * 96)
    after = cost_estimates.cost_of(tmp_path, planned(tmp_path, "table2"))
    assert after.operations < before.operations
    assert before.rest - after.rest == 4 * 10 * 512 * (267_744 - 100)


def test_what_is_measured_and_removed_leaves_nothing(tmp_path):
    glue = planned(tmp_path, "table3")
    cost = cost_estimates.cost_of(tmp_path, glue)
    assert cost.rest == 0 < cost.peak
    # Fine-tuned models that stay are there beside the next one.
    tuned = cost_estimates.cost_of(tmp_path, glue, "tuned")
    one = tuned.rest // len(glue.trainings)
    assert tuned.rest == one * len(glue.trainings)
    assert tuned.peak == cost.peak + one * (len(glue.trainings) - 1)


@pytest.mark.parametrize(("keep", "files"), [("all", 4), ("last", 2), ("best", 1), ("tuned", 1)])
def test_what_stays_is_counted_as_it_is_kept(tmp_path, keep, files):
    one = planned(tmp_path, "table2")
    size = 10 * cost_estimates.parameters(one.final.config["model"], 267_744)
    assert cost_estimates.cost_of(tmp_path, one, keep) == cost_estimates.Cost(
        cost_estimates.cost_of(tmp_path, one).operations, 5 * size, files * size
    )


def test_the_most_that_is_there_at_a_time():
    costs = [cost_estimates.Cost(0, peak, 10) for peak in (50, 20, 30)]
    assert cost_estimates.peak_of(costs, 1) == 50 + 10 + 10
    assert cost_estimates.peak_of(costs, 2) == 50 + 30 + 10
    assert cost_estimates.peak_of(costs, 0) == cost_estimates.peak_of(costs, 9) == 100


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_must_be_one(rate):
    with pytest.raises(ValueError, match="`--tflops` must be above 0"):
        cost_estimates.check_rate(rate)


def test_without_room_nothing_starts(tmp_path, monkeypatch):
    one = planned(tmp_path, "table2")
    needed = cost_estimates.cost_of(tmp_path, one).peak
    usage = type("Usage", (), {"free": needed})
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage)
    preflight.check_room(tmp_path, [one, one], jobs=1)
    with pytest.raises(ValueError, match=r"room for 15\.6 GB, by estimate, for base-vanilla-s1"):
        preflight.check_room(tmp_path, [one, one], jobs=2)


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("all", {"checkpoint_best.pt", "checkpoint_last.pt", "checkpoint_1_5.pt"}),
        ("last", {"checkpoint_best.pt", "checkpoint_last.pt"}),
        ("best", {"checkpoint_best.pt"}),
        ("tuned", {"checkpoint_best.pt"}),
    ],
)
def test_what_stays(tmp_path, keep, left):
    one = planned(tmp_path, "table2")
    folder = tmp_path / one.run.folder
    folder.mkdir(parents=True)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt", "checkpoint_1_5.pt", "train.log"):
        (folder / name).touch()
    checkpoints.delete_unkept(tmp_path, one, one.final, keep)
    assert {path.name for path in folder.iterdir()} == left | {"train.log"}


def test_the_plan_of_a_paper(root, capsys):
    words = ["paper", "--scale", "toy", "--rows", "base", "--slurm", "--dry-run", "--tflops", "1"]
    assert main(words, root) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0].split()[0] == "table"
    tables = ["table2", "table8", "table3", "table4"]  # Table 5 has no Base
    assert [line.split()[0] for line in lines[1:6]] == [*tables, "all"]
    jobs = [line.split(":")[0].strip() for line in lines if line.startswith("  ")]
    assert jobs.index("table8-toy-base-linear-s1") < jobs.index("table3-toy-base-linear-s1")
    assert jobs[-1].endswith("-render") and len(set(jobs)) == len(jobs)
    assert "table3-toy-base-linear-s1: CPU, after table8-toy-base-linear-s1" in said
    with pytest.raises(SystemExit):
        main([*words[:-1], "0"], root)
    with pytest.raises(SystemExit):
        main(["paper", "--rows", "nonsense", "--slurm", "--dry-run"], root)
    assert "which is in no table" in capsys.readouterr().err
