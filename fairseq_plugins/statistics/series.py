"""The lines of figures, before anything draws them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_plugins.experiments.extrapolation import factors_of
from fairseq_plugins.papers.extrapolation import BUCKETS, bleu_metric, length_metric
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import mean

Curve = list[tuple[int, float]]  # updates, perplexity
Line = list[tuple[float, float]]  # length or place in training lengths, perplexity
Points = Sequence[tuple[float, float]]
Lines = Mapping[tuple[str, str], Points]  # by (row, attention)


def mean_curves(shown: Sequence[Result]) -> dict[tuple[str, str], Curve]:
    """By (row, attention) the mean perplexity over seeds at the steps that all of them have."""
    found: dict[tuple[str, str], list[dict[int, float]]] = {}
    for result in shown:
        points = {int(step): 2**loss for step, loss in result["metrics"]["curve"]}
        found.setdefault((result["row"], result["attention"]), []).append(points)
    return {
        place: [
            (step, mean(points[step] for points in seeds))
            for step in sorted(set.intersection(*map(set, seeds)))
        ]
        for place, seeds in found.items()
    }


def length_lines(results: Sequence[Result], suffix: str = "") -> dict[tuple[str, str], Line]:
    """Perplexities by length, the mean over the seeds that have it."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for result in results:
        cell = found.setdefault((result["row"], result["attention"]), {})
        for factor in factors_of(result["metrics"]):
            value = result["metrics"].get(f"{length_metric(factor)}{suffix}")
            if value is not None:
                cell.setdefault(float(factor), []).append(value)
    return _means(found)


def place_lines(results: Sequence[Result], factor: int) -> dict[tuple[str, str], Line]:
    """Perplexities by place in windows of one length, the mean over seeds."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for result in results:
        losses = result["metrics"]["by_position"].get(f"{factor}x", [])
        cell = found.setdefault((result["row"], result["attention"]), {})
        for i, loss in enumerate(losses):
            if loss is not None:
                cell.setdefault((i + 0.5) * factor / len(losses), []).append(2**loss)
    return _means(found)


def bucket_lines(results: Sequence[Result]) -> dict[tuple[str, str], Line]:
    """BLEU by the place of a length of the source in `BUCKETS`, the mean over the seeds."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for result in results:
        cell = found.setdefault((result["row"], result["attention"]), {})
        for i, name in enumerate(BUCKETS):
            value = result["metrics"].get(bleu_metric(name))
            if value is not None:
                cell.setdefault(float(i), []).append(value)
    return _means(found)


def longest_places(results: Sequence[Result]) -> dict[str, tuple[int, dict[tuple[str, str], Line]]]:
    """By attention the longest window, in training lengths, that has numbers, and the lines in it.

    An attention that has no numbers at all is not there.
    """
    found = {}
    for attention in sorted({result["attention"] for result in results}):
        own = [result for result in results if result["attention"] == attention]
        lengths = {int(name[:-1]) for result in own for name in result["metrics"]["by_position"]}
        if lengths:
            found[attention] = max(lengths), place_lines(own, max(lengths))
    return found


def _means(found: Mapping[tuple[str, str], Mapping[float, list[float]]]) -> dict[Any, Line]:
    return {
        place: [(x, mean(values)) for x, values in sorted(cell.items())]
        for place, cell in found.items()
        if cell
    }
