"""Metrics against values worked out by hand."""

import math

import pytest

from fairseq_plugins.glue import metrics
from fairseq_plugins.glue.tasks import TASKS, GlueTask, Labels

TARGETS = ["1", "1", "1", "1", "0", "0"]
GUESSES = ["1", "1", "1", "0", "1", "0"]  # 3 true positives, 1 false, 1 missed, 1 true negative


def score(metric, targets, predictions, positive="1"):
    is_number = isinstance(targets[0], float)
    labels = Labels() if is_number else Labels(("0", "1"))
    task = GlueTask("task", (), labels, (metric,), positive=positive)
    return metrics.score(task, targets, predictions)[metric]


def test_classes():
    assert score("accuracy", TARGETS, GUESSES) == pytest.approx(100 * 4 / 6)
    assert score("f1", TARGETS, GUESSES) == pytest.approx(100 * 2 * 3 / (2 * 3 + 1 + 1))
    assert score("f1", TARGETS, GUESSES, "0") == pytest.approx(100 * 2 * 1 / (2 * 1 + 1 + 1))
    # (tp tn - fp fn) / sqrt((tp+fp)(tp+fn)(tn+fp)(tn+fn))
    assert score("matthews", TARGETS, GUESSES) == pytest.approx(100 * (3 - 1) / math.sqrt(64))


def test_numbers():
    targets, guesses = [0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 2.0, 10.0]
    # deviations (-1.5, -0.5, 0.5, 1.5) and (-2.25, -3.25, -1.25, 6.75): products sum to 14.5
    expected = 14.5 / math.sqrt(5 * (2.25**2 + 3.25**2 + 1.25**2 + 6.75**2))
    assert score("pearson", targets, guesses) == pytest.approx(100 * expected)
    # ranks differ by 1, 1, 0, 0: 1 - 6 * 2 / (4 * 15)
    assert score("spearman", targets, guesses) == pytest.approx(80)


def test_predictions_that_are_all_the_same():
    assert score("matthews", TARGETS, ["1"] * 6) == 0
    assert score("f1", TARGETS, ["0"] * 6) == 0
    assert score("f1", ["0", "0"], ["0", "0"]) == 0
    for metric in ("pearson", "spearman"):
        assert score(metric, [1.0, 2.0], [3.0, 3.0]) == 0


def test_each_task_has_its_official_metrics():
    official = {
        "CoLA": "matthews",
        "MRPC": "f1 accuracy",
        "QQP": "f1 accuracy",
        "STS-B": "spearman pearson",
        **dict.fromkeys(("SST-2", "MNLI", "QNLI", "RTE", "WNLI"), "accuracy"),
    }
    for name, wanted in official.items():
        task = TASKS[name]
        labels = [1.0, 2.0, 4.0] if task.labels.is_number else [*task.labels.classes[:2]]
        found = metrics.score(task, labels, labels)
        assert found == {metric: pytest.approx(100) for metric in task.metrics}
        assert set(wanted.split()) <= set(found), name


def test_scores_of_nothing_or_of_nonsense_are_refused():
    with pytest.raises(ValueError, match="as many as"):
        metrics.score(TASKS["RTE"], ["entailment"] * 3, ["entailment"] * 2)
    with pytest.raises(ValueError, match="finite"):
        metrics.score(TASKS["STS-B"], [1.0, 2.0], [1.0, float("nan")])
