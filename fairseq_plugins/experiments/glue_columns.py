"""Learning rates of GLUE's tables, and the task, metric and subset of each column."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq_plugins.papers import PUBLISHED

PUBLISHED_RATES = (1e-4,)  # for a published model of 384 features
_SMALL_RATES = (1e-4, 3e-4)  # chosen on held-out data
# At scale paper those of the LRPE paper. Small models with few updates need rates ten times as
# high; at scales mini and small the rate is chosen on held-out data.
LRPE_RATES = {
    "paper": (1e-5, 3e-5, 6e-5, 1e-4),
    "small": _SMALL_RATES,
    PUBLISHED: PUBLISHED_RATES,
    "mini": (3e-4, 1e-3),
    "toy": (1e-3,),
}
# The BERT paper has one rate.
BERT_RATES = {
    "paper": (2e-5,),
    "small": _SMALL_RATES,
    PUBLISHED: PUBLISHED_RATES,
    "mini": (6e-4,),
    "toy": (1e-3,),
}


@dataclass(frozen=True)
class Source:
    """The source of a column: a task, a metric and a development subset.

    instead: subset that replaces `subset` if the data lacks it; empty for none.
    """

    task: str
    metric: str = "accuracy"
    subset: str = "valid"
    instead: str = ""

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets that may fill the column, the preferred one first."""
        return (self.subset, self.instead) if self.instead else (self.subset,)


# By column of the papers' tables.
LRPE_SOURCES = {
    "MNLI-m": Source("MNLI"),
    "MNLI-mm": Source("MNLI", subset="valid1"),
    "QNLI": Source("QNLI"),
    "QQP": Source("QQP"),
    "SST-2": Source("SST-2"),
}
BERT_SOURCES = {
    "CoLA": Source("CoLA", "matthews"),
    "SST-2": Source("SST-2"),
    "MNLI": Source("MNLI", subset="valid1", instead="valid"),
    "MRPC": Source("MRPC", "f1"),
    "QNLI": Source("QNLI"),
    "QQP": Source("QQP", "f1"),
    "RTE": Source("RTE"),
    "STS-B": Source("STS-B", "spearman"),
    "WNLI": Source("WNLI"),
}


def recorded_scores(
    sources: Mapping[str, Source], metrics: Mapping[str, Any], training: str, task: str, first: str
) -> dict[str, dict[str, float]]:
    """Return the scores of a training by subset and metric, from the metrics of a result.

    Args:
        sources: by column.
        metrics: of the result, in which the task has one learning rate.
        training: its name.
        task: its task.
        first: the metric of a task without a column.
    """
    scores: dict[str, dict[str, float]] = {}
    for label, source in sources.items():
        if source.task == task and label in metrics:
            subset = source.instead if label in metrics["replaced"] else source.subset
            scores.setdefault(subset, {})[source.metric] = metrics[label]
    chosen_by = next((one.metric for one in sources.values() if one.task == task), first)
    # The score as it was measured; those of columns are rounded.
    scores.setdefault("valid", {})[chosen_by] = metrics["tried"][training]
    return scores
