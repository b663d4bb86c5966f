"""Means over seeds as lines of figures, and metrics for claims that are computed from curves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from fairseq_plugins.experiments.extrapolation import factors_of
from fairseq_plugins.papers.extrapolation import BUCKETS, bleu_metric, length_metric
from fairseq_plugins.papers.lrpe import LAST_TRAIN_LOSS, UPDATES_TO_REFERENCE
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import Cells, gather

Metrics = Mapping[str, Any]  # of a result
Curve = list[tuple[int, float]]  # updates, perplexity
Line = list[tuple[float, float]]  # length or place in training lengths, perplexity
Points = Sequence[tuple[float, float]]
Lines = Mapping[tuple[str, str], Points]  # by (row, attention)


def mean_curves(shown: Sequence[Result]) -> dict[tuple[str, str], Curve]:
    """Average perplexities over seeds, at the steps that all seeds of a row have."""
    found: dict[tuple[str, str], list[dict[int, float]]] = {}
    for result in shown:
        points = {int(step): 2**loss for step, loss in result["metrics"]["curve"]}
        found.setdefault((result["row"], result["attention"]), []).append(points)
    return {place: average(seeds) for place, seeds in found.items()}


def average(runs: Sequence[Mapping[int, float]]) -> Curve:
    """Average the numbers of runs at the updates that all of them have."""
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    return [(step, fmean(run[step] for run in runs)) for step in steps]


def length_lines(results: Sequence[Result], suffix: str = "") -> dict[tuple[str, str], Line]:
    """Average perplexities over seeds, by length; `suffix` picks an evaluation."""

    def points(metrics: Metrics) -> list[tuple[float, float | None]]:
        factors = factors_of(metrics)
        return [(float(x), metrics.get(f"{length_metric(x)}{suffix}")) for x in factors]

    return _means(results, points)


def place_lines(results: Sequence[Result], factor: int) -> dict[tuple[str, str], Line]:
    """Average perplexities over seeds, by place in a window of `factor` training lengths."""

    def points(metrics: Metrics) -> list[tuple[float, float | None]]:
        losses = metrics["by_position"].get(f"{factor}x", [])
        places = [(i + 0.5) * factor / len(losses) for i in range(len(losses))]
        numbers = [None if loss is None else 2**loss for loss in losses]
        return list(zip(places, numbers, strict=True))

    return _means(results, points)


def bucket_lines(results: Sequence[Result]) -> dict[tuple[str, str], Line]:
    """Average BLEU over seeds, by the index in `BUCKETS` of the source's length."""
    return _means(
        results,
        lambda metrics: [(float(i), metrics.get(bleu_metric(b))) for i, b in enumerate(BUCKETS)],
    )


def part_lines(results: Sequence[Result], measure: str) -> dict[tuple[str, str], Line]:
    """Average a measure over seeds, by the number of the part of pre-training, from 1 on."""
    return _means(
        results,
        lambda metrics: [(float(i), part[measure]) for i, part in enumerate(metrics["parts"], 1)],
    )


def longest_places(results: Sequence[Result]) -> dict[str, tuple[int, dict[tuple[str, str], Line]]]:
    """Return by attention the longest window with numbers, in training lengths, and its lines."""
    found = {}
    for attention in sorted({result["attention"] for result in results}):
        own = [result for result in results if result["attention"] == attention]
        lengths = {int(name[:-1]) for result in own for name in result["metrics"]["by_position"]}
        if lengths:
            found[attention] = max(lengths), place_lines(own, max(lengths))
    return found


def _means(
    results: Sequence[Result], points: Callable[[Metrics], Iterable[tuple[float, float | None]]]
) -> dict[tuple[str, str], Line]:
    """Average the points of each row and attention by x, over the results that have a number."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for result in results:
        cell = found.setdefault((result["row"], result["attention"]), {})
        for x, value in points(result["metrics"]):
            if value is not None:
                cell.setdefault(x, []).append(value)
    return {
        key: [(x, fmean(values)) for x, values in sorted(cell.items())]
        for key, cell in found.items()
        if cell
    }


def with_derived(table: Table, results: Sequence[Result], cells: Cells) -> Cells:
    """Add a table's derived metrics, which have no column on its page, to its cells.

    ``updates_to_reference`` is the number of updates after which the validation loss is first as
    low as the lowest loss of the reference row at the same seed, interpolated linearly between
    validations. A row has none if one of its runs never gets so low, since its other seeds alone
    would flatter it. ``last_train_loss`` is the last logged training loss.
    """
    wanted = {column.metric for column in table.derived}
    if not wanted:
        return cells
    lowest = {
        (one["attention"], one["seed"]): one["metrics"].get("valid_loss")
        for one in results
        if one["row"] == table.reference
    }
    found, never = [], set()
    for one in results:
        metrics: dict[str, float | None] = {key: one["metrics"].get(key) for key in wanted}
        target = lowest.get((one["attention"], one["seed"]))
        if UPDATES_TO_REFERENCE.metric in wanted and target is not None:
            updates = updates_to(one["metrics"]["curve"], target)
            metrics[UPDATES_TO_REFERENCE.metric] = updates
            if updates is None:
                never.add((one["row"], one["attention"]))
        if LAST_TRAIN_LOSS.metric in wanted:
            points = one.get("curves", {}).get("", {}).get("train", [])
            metrics[LAST_TRAIN_LOSS.metric] = points[-1][1] if points else None
        found.append({**one, "metrics": metrics})
    derived = {
        place: {
            metric: seeds
            for metric, seeds in cell.items()
            if metric != UPDATES_TO_REFERENCE.metric or place not in never
        }
        for place, cell in gather(found, table.derived).items()
    }
    return {place: {**cell, **derived.get(place, {})} for place, cell in cells.items()}


def updates_to(curve: Sequence[tuple[int, float]], loss: float) -> float | None:
    """Return the updates at which a curve of (updates, loss) reaches a loss; None if never."""
    if curve and curve[0][1] <= loss:
        return float(curve[0][0])
    for (start, above), (end, below) in pairwise(curve):
        if below <= loss:
            return start + (end - start) * (above - loss) / (above - below)
    return None
