"""Sections with observations: how numbers depend on length, on short samples, on tokens."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fairseq_plugins.analysis.sentences import summarise
from fairseq_plugins.common.pages import Section, bullets
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.extrapolation import (
    BUCKETS,
    EXTRAPOLATES,
    SLIDING,
    bleu_metric,
    length_metric,
)
from fairseq_plugins.papers.lrpe import TABLE_4
from fairseq_plugins.papers.tables import MARK, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import gather, rows_of
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import Line, bucket_lines, length_lines

_PROTOCOLS = {"": "whole windows", SLIDING: "sliding window"}
SHORT = "short_"  # metrics of fine-tuning before the longest samples
RISES = (
    f"A rise is that of a row's mean over its seeds, without an interval; {EXTRAPOLATES:g} % is a "
    "threshold of this project."
)


def valid_bleu_both_ways(judged: JudgedTable) -> list[Section]:
    """Return the section with BLEU of tokens beside SacreBLEU; [] if no result has both."""
    columns = (TABLE_4.column("valid_bleu"), TABLE_4.column("valid_token_bleu"))
    results = [one for one in judged.results if one["metrics"].get(columns[1].metric) is not None]
    if judged.table.name != TABLE_4.name or not results:
        return []
    cells = gather(results, columns)
    lines = []
    for attention in dict.fromkeys(attention for _, attention in cells):
        sacre, tokens = (rows_of(cells, attention, column.metric) for column in columns)
        for row in sorted(sacre):
            printed = judged.table.row(row).paper.get(attention, {}).get(columns[0].metric)
            lines.append(
                [
                    f"`{row}`",
                    attention,
                    printed.text(columns[0].digits) if printed else DASH,
                    f"{fmean(tokens[row].values()):.2f}",
                    f"{fmean(sacre[row].values()):.2f}",
                ]
            )
    head = ["Method", "attention", "paper, of tokens", "ours, of tokens", "ours, SacreBLEU"]
    table = markdown_table(head, lines, left=2)
    return [Section("BLEU of the validation set, of tokens and as SacreBLEU", [table])]


def rises(results: Sequence[Result], suffix: str, attention: str, factor: int) -> dict[str, float]:
    """Compute by how many per cent each row's perplexity rises from 1x to a length, least first.

    Only seeds with both lengths count. suffix: of the metrics.
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


def describe(found: Mapping[str, float], factor: int) -> str:
    """Describe which rows extrapolate to a length, from their rises (not empty), least first."""
    words = [f"`{row}` ({rise:+.1f} %)" for row, rise in found.items()]
    count = sum(rise <= EXTRAPOLATES for rise in found.values())
    text = f"from 1x to {factor}x the perplexity rises by at most {EXTRAPOLATES:g} % in "
    text += f"{count or 'none'} of {len(found)} rows"
    if count:
        text += f": {', '.join(words[:count])}"
    if rest := words[count:]:
        text += f"; {'among the others ' if count else ''}it rises least in {rest[0]}"
        text += f" and most in {rest[-1]}" if len(rest) > 1 else ""
    return f"{text}."


def observations(judged: JudgedTable) -> list[Section]:
    """Return the section on lengths; [] for tables without lengths or results."""
    table = judged.table
    sentences = [*_describe_lengths(table, judged.results), *describe_source_lengths(judged)]
    if not sentences:
        return []
    parts = [bullets(sentences)]
    if table.published_observations:
        published = bullets([f"{paper}: {text}" for paper, text in table.published_observations])
        parts += [
            "**What the papers observed**, with far larger models and mostly other texts:",
            published,
        ]
    return [Section("Observations", parts)]


def _describe_lengths(table: Table, results: Sequence[Result]) -> list[str]:
    """Describe rises of perplexity up to the longest length, by protocol and attention."""
    sentences = []
    for suffix, words in _PROTOCOLS.items():
        for attention in table.attentions:
            for factor in sorted(table.lengths, reverse=True):
                if factor > 1 and (found := rises(results, suffix, attention, factor)):
                    text = describe(found, factor)
                    sentences.append(f"{attention.capitalize()} attention, {words}: {text}")
                    break
    return [*sentences, RISES] if sentences else []


def describe_source_lengths(judged: JudgedTable) -> list[str]:
    """Describe for each attention how BLEU falls with length, and how rows differ by bucket.

    [] for tables without a figure of buckets, and without results.
    """
    table = judged.table
    if not any(figure.kind == "buckets" for figure in table.figures):
        return []
    lines = bucket_lines(judged.results)
    sentences = []
    for attention in (*table.attentions, *table.extra_attentions):
        own = {row: line for (row, a), line in lines.items() if a == attention}
        for sentence in (_falls(own), _gains(judged, own, attention)):
            if sentence:
                sentences.append(f"{attention.capitalize()} attention, {sentence}")
    return sentences


def _falls(lines: Mapping[str, Line]) -> str:
    """Describe the change from the shortest to the longest bucket; "" for one bucket."""
    buckets_present = {x for line in lines.values() for x, _ in line}
    first, last = min(buckets_present, default=0.0), max(buckets_present, default=0.0)
    points = {row: dict(line) for row, line in lines.items()}
    changes = {
        row: own[last] - own[first]
        for row, own in points.items()
        if first < last and {first, last} <= own.keys()
    }
    if not changes:
        return ""
    ordered = sorted(changes, key=lambda row: -changes[row])
    words = [f"`{row}` ({points[row][first]:.2f} to {points[row][last]:.2f})" for row in ordered]
    falling = sum(change < 0 for change in changes.values())
    text = f"from sources of {BUCKETS[int(first)]} words to those of {BUCKETS[int(last)]}: BLEU "
    text += f"falls in {falling or 'none'} of {len(changes)} rows"
    if len(words) == 1:
        return f"{text}: {words[0]}."
    return f"{text}, least in {words[0]} and most in {words[-1]}."


def _gains(judged: JudgedTable, lines: Mapping[str, Line], attention: str) -> str:
    """Describe each row's lead over the reference by bucket; "" without results."""
    buckets_present = sorted({int(x) for line in lines.values() for x, _ in line})
    gaps = [judged.against(attention, bleu_metric(BUCKETS[i])) for i in buckets_present]
    rows = [row for row in sorted(lines) if any(row in gap for gap in gaps)]
    if not rows:
        return ""
    words = [
        f"`{row}` "
        + ", ".join(
            f"{gap[row].effect:+.2f}{MARK if gap[row].is_significant else ''}"
            if row in gap
            else "-"
            for gap in gaps
        )
        for row in rows
    ]
    buckets = ", ".join(BUCKETS[i] for i in buckets_present)
    text = f"BLEU minus that of `{judged.table.reference}` at {buckets} words: "
    has_interval = any(estimate.p is not None for gap in gaps for estimate in gap.values())
    how_sure = (
        f"{MARK}: significant, as in the table"
        if has_interval
        else "each row has one seed, so no difference has an interval"
    )
    return f"{text}{'; '.join(words)} ({how_sure})."


def short_sample_sentences(judged: JudgedTable) -> list[Section]:
    """Return the section on short samples; [] for tables without such columns or rows."""
    table, sentences = judged.table, []
    for attention in table.attentions:
        for column in table.columns:
            rows = judged.rows(attention, column.metric)
            if not column.metric.startswith(SHORT) or table.reference not in rows:
                continue
            if why := judged.no_row_above_baseline(attention, column):
                sentences.append(f"{why[0].upper()}{why[1:]}, so these numbers decide nothing.")
                continue
            found = {row: fmean(seeds.values()) for row, seeds in rows.items()}
            least = found.pop(table.reference)
            if not found:
                continue
            text = summarise(
                f"{column.label}, is above that of `{table.reference}` ({least:.{column.digits}f})",
                {row: (own > least, f"{own:.{column.digits}f}") for row, own in found.items()},
            )
            once = all(len(seeds) == 1 for seeds in rows.values())
            sentences.append(
                f"{text} Each row has one seed, so no difference has an interval." if once else text
            )
    return [Section("Observations", [" ".join(sentences)])] if sentences else []
