"""A page's section on differences within rows: each attention against one of them."""

from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.tables import MARK, Table
from fairseq_plugins.report.differences import interval
from fairseq_plugins.statistics.comparisons import Cells, rows_of
from fairseq_plugins.statistics.inference import Estimate, difference, pooled_spread, together

Differences = dict[tuple[str, str], Estimate]  # by (row, attention)


def attention_differences(table: Table, cells: Cells, against: str) -> Differences:
    """Compute how much each row's ranking metric is above that of the row under `against`.

    Without three common seeds a difference is judged by the spread that seeds make in the rows
    under these two attentions. Holm's correction is over all.
    """
    metric = table.ranked_by.metric
    theirs = rows_of(cells, against, metric)
    found: Differences = {}
    for attention in table.attentions:
        if attention == against:
            continue
        ours = rows_of(cells, attention, metric)
        spread = pooled_spread([*ours.values(), *theirs.values()])
        for row in table.row_names:
            if row in ours and row in theirs:
                found[row, attention] = difference([ours[row]], [theirs[row]], spread)
    return together(found)


def within_rows(table: Table, cells: Cells) -> list[str]:
    """Write a section for each of `table.reference_attentions`; none where it has no results."""
    return [
        part for against in table.reference_attentions for part in _section(table, cells, against)
    ]


def _section(table: Table, cells: Cells, reference: str) -> list[str]:
    found = attention_differences(table, cells, reference)
    if not found:
        return []
    attentions = list(dict.fromkeys(attention for _, attention in found))
    lines = [
        [table.row(row).label, *(_cell(table, found.get((row, a))) for a in attentions)]
        for row in dict.fromkeys(row for row, _ in found)
    ]
    against = table.name_of(reference)
    summary = (
        f"{table.ranked_by.label} of a row less that of the same row with {against}, at the seeds "
        "that both have, with its 95 % interval: by a paired t-test of three common seeds or more, "
        "else by the spread that seeds make in all rows of the two columns. "
        f"{MARK} marks p < 0.05 after Holm's correction over all of these."
    )
    header = ["Method", *(table.word_of(attention) for attention in attentions)]
    return [f"## Differences to {against}", summary, markdown_table(header, lines, left=1)]


def _cell(table: Table, one: Estimate | None) -> str:
    if one is None:
        return DASH
    digits = table.ranked_by.digits
    sure = "" if one.low is None else f" ({interval(one, digits)})"
    return f"{one.effect:+.{digits}f}{MARK if one.is_apart else ''}{sure}"
