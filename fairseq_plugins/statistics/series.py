"""Means over seeds as lines of figures: perplexity by updates or length, BLEU by length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairseq_plugins.experiments.extrapolation import factors_of
from fairseq_plugins.papers.extrapolation import BUCKETS, bleu_metric, length_metric
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import mean

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
    """Average numbers by updates over runs, at the updates that all runs have."""
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    return [(step, mean(run[step] for run in runs)) for step in steps]


def length_lines(results: Sequence[Result], suffix: str = "") -> dict[tuple[str, str], Line]:
    """Average perplexities over seeds, by length; `suffix` picks an evaluation."""

    def points(metrics: Metrics) -> list[tuple[float, float | None]]:
        factors = factors_of(metrics)
        return [(float(x), metrics.get(f"{length_metric(x)}{suffix}")) for x in factors]

    return _means(results, points)


def place_lines(results: Sequence[Result], factor: int) -> dict[tuple[str, str], Line]:
    """Average perplexities over seeds, by place in windows of one length."""

    def points(metrics: Metrics) -> list[tuple[float, float | None]]:
        losses = metrics["by_position"].get(f"{factor}x", [])
        places = [(i + 0.5) * factor / len(losses) for i in range(len(losses))]
        numbers = [None if loss is None else 2**loss for loss in losses]
        return list(zip(places, numbers, strict=True))

    return _means(results, points)


def bucket_lines(results: Sequence[Result]) -> dict[tuple[str, str], Line]:
    """Average BLEU over seeds, by the place of the source's length in `BUCKETS`."""
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
    """Average the numbers of each row and attention, over the results that have one, by place."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for result in results:
        cell = found.setdefault((result["row"], result["attention"]), {})
        for x, value in points(result["metrics"]):
            if value is not None:
                cell.setdefault(x, []).append(value)
    return {
        key: [(x, mean(values)) for x, values in sorted(cell.items())]
        for key, cell in found.items()
        if cell
    }
