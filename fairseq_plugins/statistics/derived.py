"""Metrics computed from the curves of runs, which claims on convergence use."""

from collections.abc import Sequence
from itertools import pairwise

from fairseq_plugins.papers.lrpe import LAST_TRAIN_LOSS, UPDATES_TO_REFERENCE
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import Cells, gather


def with_derived(table: Table, results: Sequence[Result], cells: Cells) -> Cells:
    """Return the cells of a table's results with its derived metrics.

    ``updates_to_reference`` is the number of updates after which the validation loss first is as
    low as the lowest of the reference row at the same seed, on straight lines between validations;
    a run that never is so low has none. ``last_train_loss`` is the last logged training loss.
    """
    wanted = {column.metric for column in table.derived}
    if not wanted:
        return cells
    lowest = {
        (one["attention"], one["seed"]): one["metrics"]["valid_loss"]
        for one in results
        if one["row"] == table.reference
    }
    found = []
    for one in results:
        metrics: dict[str, float | None] = {}
        target = lowest.get((one["attention"], one["seed"]))
        if UPDATES_TO_REFERENCE.metric in wanted and target is not None:
            metrics[UPDATES_TO_REFERENCE.metric] = updates_to(one["metrics"]["curve"], target)
        if LAST_TRAIN_LOSS.metric in wanted:
            points = one.get("curves", {}).get("", {}).get("train", [])
            metrics[LAST_TRAIN_LOSS.metric] = points[-1][1] if points else None
        found.append({**one, "metrics": metrics})
    derived = gather(found, table.derived)
    return {place: {**cell, **derived.get(place, {})} for place, cell in cells.items()}


def updates_to(curve: Sequence[tuple[int, float]], loss: float) -> float | None:
    """Return where a curve of (updates, loss) first is at or below a loss; None if it never is."""
    if curve and curve[0][1] <= loss:
        return float(curve[0][0])
    for (start, above), (end, below) in pairwise(curve):
        if below <= loss:
            return start + (end - start) * (above - loss) / (above - below)
    return None
