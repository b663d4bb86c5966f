"""Sentences on BLEU by source length."""

from collections.abc import Mapping

from fairseq_plugins.papers.extrapolation import BUCKETS, bleu_metric
from fairseq_plugins.papers.tables import MARK
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import Line, bucket_lines


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
            f"{gap[row].effect:+.2f}{MARK if gap[row].is_apart else ''}" if row in gap else "-"
            for gap in gaps
        )
        for row in rows
    ]
    buckets = ", ".join(BUCKETS[i] for i in buckets_present)
    text = f"BLEU less that of `{judged.table.reference}` at {buckets} words: "
    has_interval = any(estimate.p is not None for gap in gaps for estimate in gap.values())
    how_sure = (
        f"{MARK} differs beyond chance, as in the table"
        if has_interval
        else "with one seed of each row, no difference has an interval"
    )
    return f"{text}{'; '.join(words)} ({how_sure})."
