"""GLUE's metrics, in percent, computed by scikit-learn and SciPy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_plugins.glue.tasks import GlueTask


def matthews(targets: Sequence[str], predictions: Sequence[str]) -> float:
    """Compute Matthews' correlation of two classes; 0 for constant predictions."""
    return 100 * float(matthews_corrcoef(targets, predictions))


def accuracy(targets: Sequence[str], predictions: Sequence[str]) -> float:
    """Compute the per cent of correct predictions."""
    return 100 * float(accuracy_score(targets, predictions))


def f1(targets: Sequence[str], predictions: Sequence[str], positive: str) -> float:
    """Compute F1 of the class `positive`; 0 if it neither occurs nor is predicted."""
    scores = f1_score(targets, predictions, labels=[positive], average=None, zero_division=0.0)
    return 100 * float(scores[0])


def pearson(targets: Sequence[float], predictions: Sequence[float]) -> float:
    """Compute Pearson's correlation; 0 where one side is constant."""
    return _correlation(pearsonr, targets, predictions)


def spearman(targets: Sequence[float], predictions: Sequence[float]) -> float:
    """Compute Spearman's correlation; 0 where one side is constant."""
    return _correlation(spearmanr, targets, predictions)


def _correlation(
    function: Callable[..., Any], targets: Sequence[float], predictions: Sequence[float]
) -> float:
    if np.ptp(targets) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return 100 * float(function(targets, predictions).statistic)


METRICS: dict[str, Callable[..., float]] = {
    "matthews": matthews,
    "accuracy": accuracy,
    "f1": f1,
    "pearson": pearson,
    "spearman": spearman,
}


def score(task: GlueTask, targets: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """Compute the task's metrics by name, in percent.

    targets, predictions: class names, or numbers for numeric labels; of equal length.

    Raises:
        ValueError: the lengths differ, there are fewer than two examples, or a prediction is not
            finite.
    """
    if len(targets) != len(predictions) or len(targets) < 2:
        raise ValueError(
            "`predictions` must be as many as `targets` and at least 2, "
            f"but are {len(predictions)} for {len(targets)}."
        )
    if task.labels.is_number and not np.isfinite(predictions).all():
        raise ValueError("`predictions` must be finite, but some are not.")
    result = {}
    for name in task.metrics:
        options = {"positive": task.positive} if name == "f1" else {}
        result[name] = METRICS[name](targets, predictions, **options)
    return result
