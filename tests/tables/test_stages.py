"""A run of several stages, with stand-ins for the commands: their order, what is kept, resuming."""

import json
from pathlib import Path

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.run_options import RunOptions
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table

RUN = Run("table8", "small", "rope", "linear", 1)
NAME = "table8/small/rope-linear-s1"
STAGES = [f"{NAME}/samples_16", f"{NAME}/samples_32", NAME]


@pytest.fixture
def place(root: Path) -> Path:
    """A repository with the data of the stages, as far as the runner looks at it."""
    (root / "data" / "toy").rename(root / "data" / "novels-small")
    return root


def work(root: Path, fake: FakeCommands, run: Run = RUN) -> int:
    planned = plan_run(root / "configs", run, Devices(1))
    return run_table(root, [planned], RunOptions(), launcher=fake)


def files(folder: Path, pattern: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(pattern))


def test_stages_are_trained_in_order_each_from_the_one_before(place: Path) -> None:
    fake = FakeCommands(place)
    assert work(place, fake) == 0
    assert fake.trained == STAGES
    best = [f"checkpoints/{stage}/checkpoint_best.pt" for stage in STAGES]
    assert fake.started_from == best[:2]
    # Of a stage what the next one starts from, of the last one everything.
    assert files(place / RUN.folder, "*.pt") == [
        "checkpoint_best.pt",
        "checkpoint_last.pt",
        "samples_16/checkpoint_best.pt",
        "samples_32/checkpoint_best.pt",
    ]
    result = json.loads((place / RUN.result).read_text())
    assert [*result["config"]["trainings"]] == ["samples of 16", "samples of 32", "pretraining"]
    assert len(result["command"]) == 3
    again = FakeCommands(place)
    assert work(place, again) == 0
    assert again.trained == []


def test_a_run_that_failed_goes_on_with_the_stage_that_failed(place: Path) -> None:
    assert work(place, FakeCommands(place, failing="samples_32")) == 1
    fake = FakeCommands(place)
    assert work(place, fake) == 0
    assert fake.trained == STAGES[1:]
    assert fake.started_from[0] == f"checkpoints/{STAGES[0]}/checkpoint_best.pt"


def test_a_stage_whose_checkpoint_is_gone_is_trained_again(place: Path) -> None:
    assert work(place, FakeCommands(place, failing="samples_32")) == 1
    (place / "checkpoints" / STAGES[0] / "checkpoint_best.pt").unlink()
    fake = FakeCommands(place)
    assert work(place, fake) == 0
    assert fake.trained == STAGES


def test_another_table_starts_from_the_last_stage_and_does_not_train_it_again(place: Path) -> None:
    start = Run("bert_start", "small", "learned", "vanilla", 1)
    first, second = FakeCommands(place), FakeCommands(place)
    assert work(place, first, start) == 0
    assert work(place, second, Run("bert_continued", "small", "rope", "vanilla", 1)) == 0
    assert second.trained == ["bert_continued/small/rope-vanilla-s1"]
    assert second.started_from == [f"{start.folder.as_posix()}/checkpoint_best.pt"]
    measured = FakeCommands(place)
    assert work(place, measured, Run("bert_table2", "small", "rope", "vanilla", 1)) == 0
    assert measured.trained == []
