"""GLUE's metrics, in percent, computed by scikit-learn and SciPy."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_plugins.glue.tasks import GlueTask


def _correlation(function: Callable[..., Any]) -> Callable[..., float]:
    """Return a correlation that is 0 where one side is constant."""

    def correlation(targets: Sequence[float], predictions: Sequence[float]) -> float:
        is_constant = np.ptp(targets) == 0 or np.ptp(predictions) == 0
        return 0.0 if is_constant else float(function(targets, predictions).statistic)

    return correlation


# Matthews' correlation is 0 for constant predictions, F1 for a class that neither occurs nor is
# predicted.
METRICS: dict[str, Callable[..., float]] = {
    "matthews": matthews_corrcoef,
    "accuracy": accuracy_score,
    "f1": functools.partial(f1_score, average="macro", zero_division=0.0),  # of `labels`
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
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
        options = {"labels": [task.positive]} if name == "f1" else {}
        result[name] = 100 * float(METRICS[name](targets, predictions, **options))
    return result
