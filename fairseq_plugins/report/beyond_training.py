"""Sentences on a table of lengths, from its results, and the papers' observations."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.papers.extrapolation import GOES_ON, SLIDING, length_metric
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.by_source_length import told_by_source_length
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import length_lines

_PROTOCOLS = {"": "whole windows", SLIDING: "in a sliding window"}


def rises(results: Sequence[Result], suffix: str, attention: str, factor: int) -> dict[str, float]:
    """Return by row the rise of perplexity over that at 1x, in per cent, least first.

    Over the seeds that have both. suffix: of the metrics.
    """
    names = [f"{length_metric(each)}{suffix}" for each in (1, factor)]
    both = [
        result
        for result in results
        if result["attention"] == attention
        and all(result["metrics"].get(name) is not None for name in names)
    ]
    found = {}
    for (row, _), line in length_lines(both, suffix).items():
        points = dict(line)
        if {1.0, float(factor)} <= points.keys():
            found[row] = 100 * (points[float(factor)] / points[1.0] - 1)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def rises_at_longest(
    table: Table, results: Sequence[Result], suffix: str, attention: str
) -> list[tuple[int, dict[str, float]]]:
    """The longest of a table's lengths with numbers, and the rises there; alone, or none.

    Lengths that every row only has a reason for say nothing, nor does 1x of itself.
    """
    found = [
        (factor, rise)
        for factor in sorted(table.lengths)
        if factor > 1 and (rise := rises(results, suffix, attention, factor))
    ]
    return found[-1:]


def told(found: Mapping[str, float], factor: int) -> str:
    """A sentence on which rows go on working, of rises with the least first, at least one."""
    words = [f"`{row}` ({rise:+.1f} %)" for row, rise in found.items()]
    going_on = sum(rise <= GOES_ON for rise in found.values())
    verb, own = ("has", "its") if going_on < 2 else ("have", "their")
    said = f"at {factor}x, {going_on or 'none'} of {len(found)} rows {verb} a perplexity at most "
    said += f"{GOES_ON:g} % above {own} own at 1x"
    if going_on:
        said += f": {', '.join(words[:going_on])}"
    if rest := words[going_on:]:
        said += f"; {'of the others ' if going_on else ''}the least rises {rest[0]}"
        said += f", the most {rest[-1]}" if len(rest) > 1 else ""
    return f"{said}."


def what_is_seen(judged: JudgedTable) -> list[str]:
    """The section; empty for a table that is not of lengths, or where nothing is to be said."""
    table = judged.table
    sentences = [*_told_by_length(table, judged.results), *told_by_source_length(judged)]
    if not sentences:
        return []
    parts = ["## What is seen", "\n".join(f"- {sentence}" for sentence in sentences)]
    if table.published_observations:
        saw = "\n".join(f"- {paper}: {text}" for paper, text in table.published_observations)
        parts += [
            "**The papers saw**, with far larger models and mostly other texts:",
            saw,
        ]
    return parts


def _told_by_length(table: Table, results: Sequence[Result]) -> list[str]:
    if not table.lengths:
        return []
    return [
        f"{attention.capitalize()} attention, {words}: {told(found, factor)}"
        for suffix, words in _PROTOCOLS.items()
        for attention in table.attentions
        for factor, found in rises_at_longest(table, results, suffix, attention)
    ]
