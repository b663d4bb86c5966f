"""The papers' GLUE columns from metrics of one's own."""

import pytest

from fairseq_plugins.papers.bert import BERT_GLUE_TABLE
from fairseq_plugins.papers.lrpe import TABLE_3
from fairseq_plugins.reproduce.experiments.glue import BERT_GLUE, LRPE_GLUE


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


def test_a_complete_row_and_the_mismatched_column():
    metrics = {
        task: {"valid": {"accuracy": 50.0, "f1": 50.0}, "valid1": {"accuracy": 10.0}}
        for task in ("MNLI", "QNLI", "QQP", "SST-2")
    }
    lrpe = combined(LRPE_GLUE, metrics)
    assert (lrpe["averaged"], lrpe["replaced"]) == ([*TABLE_3.average_of], [])
    assert (lrpe["MNLI-mm"], lrpe["average"]) == (10, 50)
    assert combined(BERT_GLUE, metrics)["MNLI"] == 10


def test_generated_tasks_are_averaged_over_what_they_are_chosen_by():
    metrics = {name: {"valid": {"accuracy": n}} for name, n in (("Order", 90.0), ("Place", 70.0))}
    found = combined(LRPE_GLUE, metrics)
    assert (found["average"], found["averaged"]) == (80, ["Order", "Place"])
