"""The section on perplexity beyond the training length, with the papers' observations."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.common.pages import Section, bullets
from fairseq_plugins.papers.extrapolation import GOES_ON, SLIDING, length_metric
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.by_source_length import describe_source_lengths
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import length_lines

_PROTOCOLS = {"": "whole windows", SLIDING: "in a sliding window"}


def rises(results: Sequence[Result], suffix: str, attention: str, factor: int) -> dict[str, float]:
    """Compute each row's rise of perplexity over 1x in per cent, least first.

    Only seeds with both lengths count. suffix: suffix of the metrics.
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
    """Return the longest length above 1x with numbers and its rises, as a list of one or none."""
    found = [
        (factor, rise)
        for factor in sorted(table.lengths)
        if factor > 1 and (rise := rises(results, suffix, attention, factor))
    ]
    return found[-1:]


def describe(found: Mapping[str, float], factor: int) -> str:
    """Say which rows keep their perplexity, from at least one rise, least first."""
    words = [f"`{row}` ({rise:+.1f} %)" for row, rise in found.items()]
    going_on = sum(rise <= GOES_ON for rise in found.values())
    verb, own = ("has", "its") if going_on < 2 else ("have", "their")
    text = f"at {factor}x, {going_on or 'none'} of {len(found)} rows {verb} a perplexity at most "
    text += f"{GOES_ON:g} % above {own} own at 1x"
    if going_on:
        text += f": {', '.join(words[:going_on])}"
    if rest := words[going_on:]:
        text += f"; {'of the others ' if going_on else ''}the least rises {rest[0]}"
        text += f", the most {rest[-1]}" if len(rest) > 1 else ""
    return f"{text}."


def observations(judged: JudgedTable) -> list[Section]:
    """Return the section; [] for tables without lengths or results."""
    table = judged.table
    sentences = [*_describe_lengths(table, judged.results), *describe_source_lengths(judged)]
    if not sentences:
        return []
    parts = [bullets(sentences)]
    if table.published_observations:
        published = bullets([f"{paper}: {text}" for paper, text in table.published_observations])
        parts += ["**The papers saw**, with far larger models and mostly other texts:", published]
    return [Section("What is seen", parts)]


def _describe_lengths(table: Table, results: Sequence[Result]) -> list[str]:
    if not table.lengths:
        return []
    return [
        f"{attention.capitalize()} attention, {words}: {describe(found, factor)}"
        for suffix, words in _PROTOCOLS.items()
        for attention in table.attentions
        for factor, found in rises_at_longest(table, results, suffix, attention)
    ]
