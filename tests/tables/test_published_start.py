"""The BERT paper's tables from a published model in place of the start that is trained here."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.root import FOLDER_VARIABLES, from_root
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.training import PretrainedModel
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.site.reading import read_evidence
from fairseq_plugins.site.runs import script
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table

PUBLISHED = "checkpoints/roberta-base/model.pt"
RUN = Run("bert_table4", "toy", "shaw_only", "vanilla", 1)
CONTINUED = "bert_continued/toy/shaw_only-vanilla-s1"


def publish(place: Path, content: str = "weights", name: str = PUBLISHED) -> PretrainedModel:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return PretrainedModel(from_root(path, place), sha256(path))


def work(place: Path, start: PretrainedModel | None, run: Run = RUN) -> tuple[int, FakeCommands]:
    fake = FakeCommands(place)
    planned = plan_run(place / "configs", run, Devices(0), start)
    status = run_table(place, [planned], RunOptions(), launcher=fake)
    return status, fake


def read(place: Path, run: Run = RUN) -> dict[str, Any]:
    found: dict[str, Any] = read_content(place / run.result)
    return found


def test_rows_start_from_it_and_their_results_say_so(place: Path) -> None:
    start = publish(place)
    status, fake = work(place, start)
    assert status == 0
    assert fake.trained[0] == CONTINUED  # without bert_start before it
    assert len(fake.trained) == 3 and fake.started_from[0] == PUBLISHED
    trainings = read(place)["config"]["trainings"]
    assert [*trainings] == ["continued", "SQuAD v1", "SQuAD v2"]
    assert trainings["continued"]["start"] == {"checkpoint": PUBLISHED, "weights": start.weights}
    page = (place / "results/bert_table4/toy.md").read_text()
    shown = f"`{PUBLISHED}` (weights {start.weights[:16]}"
    assert f"All rows start from a published model, {shown}" in page
    (own,) = (one for one in read_evidence(place, 1).tables if one.table.name == RUN.table)
    again = script(own, ["shaw_only"], ["vanilla"], [1])  # what the report says makes them
    assert again.endswith(f"--seeds 1 --start {PUBLISHED}")
    # The same file elsewhere is the same start.
    moved = publish(place, name="checkpoints/elsewhere.pt")
    assert work(place, moved)[1].trained == []
    assert "Left out" not in (place / "results/bert_table4/toy.md").read_text()
    properties = Run("bert_table2", "toy", "shaw_only", "vanilla", 1)
    assert work(place, start, properties)[1].trained == []  # of the same continued training


@pytest.mark.parametrize("then", ["another file", None])
def test_another_start_is_another_experiment(then: str | None, place: Path, capsys) -> None:
    assert work(place, publish(place))[0] == 0
    start = None if then is None else publish(place, then)
    status, fake = work(place, start)
    assert (status, fake.trained) == (1, [])
    assert "made by another experiment" in capsys.readouterr().out


def test_a_page_is_of_one_start(place: Path) -> None:
    """Of the newest result's; the other ones are named."""
    other = Run("bert_table4", "toy", "learned", "vanilla", 1)
    assert work(place, None, other)[0] == 0
    older = read(place, other)
    older["finished_at"] = "2020-01-01T00:00:00+00:00"
    (place / other.result).write_text(json.dumps(older))
    assert work(place, publish(place))[0] == 0
    page = (place / "results/bert_table4/toy.md").read_text()
    assert "Left out: `learned-vanilla-s1`, which starts from another model than" in page
    assert "70.00 (1)" in page


def test_results_of_other_data_are_named_before_a_training(place: Path, capsys) -> None:
    start, other = publish(place), Run("bert_table4", "toy", "learned", "vanilla", 1)
    assert work(place, start, other)[0] == 0
    assert "other data" not in capsys.readouterr().out
    older = read(place, other)
    older["data"]["dictionary_size"] = dict.fromkeys(older["data"]["dictionary_size"], 9)
    (place / other.result).write_text(json.dumps(older))
    assert work(place, start)[0] == 0
    shown = capsys.readouterr()
    assert "Warning: shaw_only-vanilla-s1 has other data than learned-vanilla-s1" in shown.out
    assert "`learned-vanilla-s1`, made by another experiment (the data differs)" in shown.err


def test_at_scale_paper_both_phases_follow_from_it(place: Path, capsys) -> None:
    torch.save({"model": {"weights": torch.ones(1)}}, place / publish(place).checkpoint)
    words = ["bert_table2", "--scale", "paper", "--rows", "shaw_only", "--dry-run"]
    assert main([*words, "--start", PUBLISHED], place) == 0
    printed = capsys.readouterr().out
    trained = [shlex.split(line) for line in printed.splitlines() if "hydra-train" in line]
    folders = [next(w for w in words if w.startswith("checkpoint.save_dir=")) for words in trained]
    assert "bert_start" not in printed
    assert folders[0].endswith("shaw_only-vanilla-s1/samples_128")
    assert f"model.init_from={PUBLISHED}" in trained[0]
    assert sum(f"model.init_from={PUBLISHED}" in words for words in trained) == 1
    assert "task.mask_whole_words" not in printed  # it is the recipe's
    assert main([*words, "--start", PUBLISHED, "--slurm"], place) == 0
    assert f"--start {PUBLISHED} --srun" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "file", "message"),
    [
        ("bert_table3", "checkpoints/none.pt", "`--start` must be a checkpoint, but"),
        ("bert_start", PUBLISHED, "unrecognized arguments: --start"),
        ("table8", PUBLISHED, "unrecognized arguments: --start"),
    ],
)
def test_what_cannot_be_is_refused(
    table: str, file: str, message: str, place: Path, capsys
) -> None:
    publish(place)
    with pytest.raises(SystemExit) as refused:
        main([table, "--scale", "toy", "--rows", "learned", "--dry-run", "--start", file], place)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_a_damaged_start_is_said_once(tmp_path, capsys):
    bad = tmp_path / "bad.pt"
    bad.write_text("not one")
    with pytest.raises(SystemExit) as stopped:
        main(["bert_table3", "--scale", "mini", "--start", str(bad), "--dry-run"])
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and "`--start` must be" in said
    assert said.count(str(bad)) == 1


def test_rerun_reads_the_start_where_it_was_prepared(place: Path, monkeypatch, capsys) -> None:
    for variable in FOLDER_VARIABLES.values():
        monkeypatch.setenv(variable, "")  # so that what the command sets is undone
    publish(place, "no checkpoint", "checkpoints/start/model.pt")
    words = ["bert_table4", "--scale", "published", "--rows", "learned", "--rerun", "--dry-run"]
    with pytest.raises(SystemExit) as stopped:
        main(words, place)
    assert stopped.value.code == 2
    assert "checkpoints/start/model.pt" in capsys.readouterr().err


def test_pairs_have_the_form_of_the_published_model(place: Path) -> None:
    """A RoBERTa's have two </s> in the middle, which GLUE at this scale, a BERT's, does not."""
    run = Run("bert_table3", "published", "learned", "vanilla", 1)
    bert = PretrainedModel(Path(PUBLISHED), "0" * 64)
    for start, expected in ((bert, None), (replace(bert, separators=2), 2)):
        planned = plan_run(place / "configs", run, Devices(0), start)
        for training in planned.measured:
            assert training.config["task"]["separator_token"] == expected
            word = f"task.separator_token={expected}"
            assert (word in training.command) == (expected is not None)
        again = PretrainedModel.of(planned.config)
        assert again is not None and again.separators == start.separators
