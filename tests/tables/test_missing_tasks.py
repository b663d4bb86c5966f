"""`--missing-tasks`: a result gets the tasks that it lacks, and keeps its other scores."""

import shutil

import pytest

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.files import write_json
from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.glue import BERT_GLUE, LRPE_GLUE
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.papers.lrpe import TABLE_3
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.report.captions import caption
from fairseq_plugins.runner import table_runner
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.site.runs import circumstances
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table


def work(place, scores, *, missing_tasks, **options):
    scale = Scale("toy", ())
    rows, words = ["rope"], {"attentions": ["vanilla"], "missing_tasks": missing_tasks}
    planned, _ = plan(place / "configs", TABLE_3, scale, Devices(0), rows=rows, **words)
    fake = FakeCommands(place, scores=scores)
    status = run_table(place, planned, RunOptions(**options), launcher=fake)
    return status, fake, planned[0].run


def read(place, run):
    return results.load_result(place / run.result, experiment_of(run.table).metrics)


def forget(place, run, task):
    """Take a task out of a result, as if its data had been prepared later."""
    content = read_content(place / run.result)
    metrics = content["metrics"]
    for key in ("tried", "learning_rates"):
        metrics[key] = {name: one for name, one in metrics[key].items() if task not in name}
    metrics["averaged"] = [name for name in metrics["averaged"] if name != task]
    metrics["average"] = next(iter(metrics["tried"].values()))
    content["curves"] = {k: one for k, one in content.get("curves", {}).items() if task not in k}
    write_json(place / run.result, {**content, "commit": "1" * 40})


def test_only_the_missing_task_is_trained(place, capsys):
    _, _, run = work(place, {"Order": 90.0, "Place": 70.0}, missing_tasks=False)
    whole = read(place, run)
    forget(place, run, "Place")
    shutil.rmtree(place / run.folder)
    before = read(place, run)

    status, fake, _ = work(place, {"Place": 30.0}, missing_tasks=False)
    assert status == 0 and not fake.trained, "a run is done unless the option asks for more"
    capsys.readouterr()
    status, fake, _ = work(place, {"Place": 30.0}, missing_tasks=True)
    assert status == 0 and fake.trained == ["table3/toy/rope-vanilla-s1/Place-lr0.001"]
    assert "it has no score of Place; it is completed" in capsys.readouterr().out
    after = read(place, run)
    assert after["metrics"]["tried"] == {"Order-lr0.001": 90.0, "Place-lr0.001": 30.0}
    assert after["metrics"]["average"] == 60.0 and before["metrics"]["average"] == 90.0
    assert after["config"] == whole["config"] and after["command"] == whole["command"]
    (earlier,) = after["earlier"]
    assert earlier["trainings"] == ["Order-lr0.001"] and earlier["commit"] == "1" * 40
    assert after["commit"] != "1" * 40
    assert after["metrics"]["updates"] > before["metrics"]["updates"]
    assert ("earlier", "Order-lr0.001: commit " + "1" * 40) in [
        (name, text.partition(",")[0]) for name, text in circumstances(after)
    ]
    assert "`11111111` 1" in str(caption(TABLE_3, "toy", [after]))

    status, fake, _ = work(place, {"Place": 10.0}, missing_tasks=True)
    assert status == 0 and not fake.trained, "nothing is missing any more"


def test_what_was_added_before_is_recorded_too():
    def result(name, commit):
        circumstances = {"commit": commit, "wall_seconds": 1.0, "finished_at": "2026-01-01"}
        metrics = {"tried": {name: 1.0}, "train_seconds": 2.0, "updates": 3}
        return {**circumstances, "metrics": metrics, "curves": {name: {}}}

    two = results.completed(result("a", "1"), result("b", "2"))
    two["metrics"]["tried"] = {"a": 1.0, "b": 1.0}
    three = results.completed(two, result("c", "3"))
    assert [(one["trainings"], one["commit"]) for one in three["earlier"]] == [
        (["a"], "1"), (["b"], "2")
    ]  # fmt: skip
    assert three["metrics"]["updates"] == 9 and set(three["curves"]) == {"a", "b", "c"}


@pytest.mark.parametrize(("cosine", "agrees"), [(0.9551, True), (0.99, False)])
def test_both_parts_start_from_the_same_model(cosine, agrees):
    """Recoveries of a model that begins as the published one differ between CPU and GPU."""

    def result(start_cosine):
        metrics = {"tried": {}, "train_seconds": 1.0, "updates": 1, "start_cosine": start_cosine}
        return {"metrics": metrics, "commit": "1", "wall_seconds": 1.0, "finished_at": ""}

    if agrees:
        results.completed(result(0.955), result(cosine))
        return
    with pytest.raises(ValueError, match=r"cosine 0.955 to the published one, but this one has"):
        results.completed(result(0.955), result(cosine))


def test_recorded_scores_give_the_same_columns():
    """MNLI's second column may be of the matched set, and scores of columns are rounded."""
    experiment = BERT_GLUE.with_missing_tasks(PUBLISHED)
    parts = {
        "MNLI-lr0.0001": {"valid": {"accuracy": 58.123456}},
        "MRPC-lr0.0001": {"valid": {"f1": 86.987654, "accuracy": 80.0}},
        "CoLA-lr0.0001": {"valid": {"matthews": -1.234567}},
    }
    metrics = {
        name: {
            "task": name.partition("-lr")[0],
            "learning_rate": 1e-4,
            "first": "accuracy",
            "subsets": subsets,
        }
        for name, subsets in parts.items()
    }
    combined = experiment.combine(metrics)
    again = experiment.also_measuring(combined)
    assert "SST-2, MNLI" not in again.lacks(combined) and "SST-2" in again.lacks(combined)
    assert again.recorded("SST-2-lr0.0001") is None
    assert experiment.combine({name: again.recorded(name) for name in parts}) == combined


def test_results_with_several_rates_cannot_be_completed(capsys):
    with pytest.raises(ValueError, match="`--missing-tasks` must be left out at scale mini"):
        LRPE_GLUE.with_missing_tasks("mini")
    for other in ("--force", "--missing-checkpoints"):
        with pytest.raises(SystemExit):
            main(["table3", "--scale", "toy", "--missing-tasks", other])
        said = capsys.readouterr().err
        assert f"`--missing-tasks` must be left out with `{other}`" in said


def test_a_result_that_is_being_replaced_keeps_no_score(place, monkeypatch, capsys):
    """An interrupted --force may have other settings than the result."""
    _, _, run = work(place, {"Order": 90.0, "Place": 70.0}, missing_tasks=False)
    forget(place, run, "Place")
    before = read(place, run)
    monkeypatch.setattr(table_runner, "is_being_replaced", lambda *_: True)
    status, fake, _ = work(place, {"Place": 30.0}, missing_tasks=True)
    assert status != 0 and not fake.trained and read(place, run) == before
    assert "continue that without --missing-tasks" in capsys.readouterr().out
