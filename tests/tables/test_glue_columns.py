"""The papers' GLUE columns from metrics of one's own."""

from dataclasses import replace

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.glue import BERT_GLUE, LRPE_GLUE
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.bert import BERT_GLUE_TABLE
from fairseq_plugins.papers.lrpe import TABLE_3
from fairseq_plugins.records.runs import Run


def combined(experiment, metrics):
    """The metrics of a run from metrics[task][subset][metric]."""
    parts = {
        task: {"task": task, "learning_rate": 1e-4, "first": "accuracy", "subsets": subsets}
        for task, subsets in metrics.items()
    }
    return experiment.combine(parts)


@pytest.mark.parametrize(
    ("table", "experiment"), [(TABLE_3, LRPE_GLUE), (BERT_GLUE_TABLE, BERT_GLUE)]
)
def test_every_column_has_a_source_and_the_average_is_of_some(table, experiment):
    assert [*experiment.sources, "average"] == [column.metric for column in table.columns]
    assert set(experiment.averaged) < set(experiment.sources)


def test_columns_without_data_are_left_out_of_the_row_and_its_average():
    metrics = {
        "MNLI": {"valid": {"accuracy": 60.0}},
        "WNLI": {"valid": {"accuracy": 1.0}},
        "CoLA": {"valid": {"matthews": 20.0, "accuracy": 70.0}},
    }
    bert = combined(BERT_GLUE, metrics)
    assert (bert["CoLA"], bert["MNLI"], bert["WNLI"]) == (20, 60, 1)
    assert "RTE" not in bert
    assert (bert["average"], bert["averaged"], bert["replaced"]) == (40, ["CoLA", "MNLI"], ["MNLI"])
    lrpe = combined(LRPE_GLUE, {"MNLI": metrics["MNLI"]})
    assert lrpe["MNLI-m"] == lrpe["average"] == 60 and "MNLI-mm" not in lrpe
    qnli = combined(LRPE_GLUE, {"QNLI": metrics["MNLI"]})
    assert "This scale has no data for MNLI-mm, QNLI, QQP, SST-2." in told(lrpe)
    assert "This scale has no data for MNLI-mm, QQP, SST-2." in told(lrpe, qnli)


def told(*metrics, data=None, scale="mini", experiment=LRPE_GLUE):
    """The facts of a page of runs of Table 3, or of others; data: as it is recorded of each."""
    data = data or {}
    results = [
        {"scale": scale, "metrics": {**one, "tried": {}}, "config": {"dataset": {}}, "data": data}
        for one in metrics
    ]
    return experiment.caption_notes(results)


def test_a_complete_row_and_the_mismatched_column():
    metrics = {
        task: {"valid": {"accuracy": 50.0, "f1": 50.0}, "valid1": {"accuracy": 10.0}}
        for task in ("MNLI", "QNLI", "QQP", "SST-2")
    }
    lrpe = combined(LRPE_GLUE, metrics)
    assert (lrpe["averaged"], lrpe["replaced"]) == ([*TABLE_3.average_of], [])
    assert (lrpe["MNLI-mm"], lrpe["average"]) == (10, 50)
    assert combined(BERT_GLUE, metrics)["MNLI"] == 10


def test_what_is_held_out_chooses_and_the_development_set_is_reported():
    parts = {
        f"SST-2-lr{rate}": {
            "task": "SST-2",
            "learning_rate": rate,
            "first": "accuracy",
            "subsets": {"valid": {"accuracy": reported}, "held_out": {"accuracy": chosen}},
        }
        for rate, reported, chosen in ((1e-4, 90.0, 60.0), (3e-4, 70.0, 80.0))
    }
    found = LRPE_GLUE.combine(parts)
    assert (found["SST-2"], found["learning_rates"]) == (70, {"SST-2": 3e-4})
    assert found["tried"] == {"SST-2-lr0.0001": 60, "SST-2-lr0.0003": 80}


@pytest.mark.parametrize("held_out", [True, False])
def test_a_model_is_measured_on_what_it_is_chosen_on_too(configs, held_out):
    run = Run("table3", "mini", "rope", "vanilla", 1)
    training = plan_run(configs, run, Devices(0)).trainings[0]
    dataset = {**training.config["dataset"], "valid_subset": "held_out" if held_out else "valid"}
    training = replace(training, config={**training.config, "dataset": dataset})
    steps = LRPE_GLUE.steps(training, training.folder / "checkpoint_best.pt", run, 0)
    subsets = [step.command[step.command.index("--subset") + 1] for step in steps]
    assert subsets == (["valid", "held_out"] if held_out else ["valid"])


def test_generated_tasks_are_averaged_over_what_they_are_chosen_by():
    metrics = {name: {"valid": {"accuracy": n}} for name, n in (("Order", 90.0), ("Place", 70.0))}
    found = combined(LRPE_GLUE, metrics)
    assert (found["average"], found["averaged"]) == (80, ["Order", "Place"])


def test_shared_first_sentences_are_told_where_they_are_many():
    seen = {"MNLI": {"valid": 95.2066}, "QNLI": {"valid": 37.0}, "QQP": {"valid": 3.2667}}
    data = {"seen_first_sentences": {f"data/glue-1000/{task}": one for task, one in seen.items()}}
    metrics = {**dict.fromkeys(seen, 50.0), "replaced": [], "averaged": [*seen]}
    (fact,) = [text for text in told(metrics, data=data) if "first sentence" in text]
    assert fact.endswith("above 10 %: MNLI-m 95 %, QNLI 37 %.")
    older = {"seen_first_sentences": {"data/glue-1000/MNLI": None}}
    for lacking in ({}, older):
        assert "first sentence" not in " ".join(told(metrics, data=lacking))


@pytest.mark.parametrize(("scale", "is_told"), [("mini", True), ("paper", False)])
def test_shared_first_sentences_are_those_of_the_part_that_is_measured(scale, is_told):
    """Of BERT's MNLI the mismatched one at scale paper, where few are shared."""
    seen = {"data/glue/MNLI": {"valid": 95.0, "valid1": 2.0}}
    metrics = {"MNLI": 50.0, "replaced": [], "averaged": ["MNLI"]}
    words = {"data": {"seen_first_sentences": seen}, "scale": scale, "experiment": BERT_GLUE}
    assert ("first sentence" in " ".join(told(metrics, **words))) is is_told
