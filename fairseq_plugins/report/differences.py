"""Sections on differences between rows: sizes, intervals, marks and orderings."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.common.pages import Section
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.tables import MARK, Column, Row, Table
from fairseq_plugins.statistics.comparisons import deviation
from fairseq_plugins.statistics.inference import Estimate, Spread
from fairseq_plugins.statistics.judged import BETTER, NONE, TIE, WORSE, Agreement, JudgedTable

MOST_SPREAD = 1.5  # of a reference row, in pooled deviations; more makes p of few seeds too small
UNTESTED = "no row has several seeds, so no difference can be tested and no ordering is claimed"


def interval(estimate: Estimate, digits: int, *, sign: str = "+") -> str:
    """Format an estimate's 95 % interval; a dash without one.

    sign: sign option of Python's formats; "" for values that are not differences.
    """
    if estimate.low is None or estimate.high is None:
        return DASH
    return f"{estimate.low:{sign}.{digits}f} to {estimate.high:{sign}.{digits}f}"


def probability(p: float | None) -> str:
    """Format a p-value."""
    if p is None:
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_is(p: float | None) -> str:
    """Format a p-value within a sentence: "p = 0.012", "p < 0.001"."""
    text = probability(p)
    return f"p {text.replace('<', '< ')}" if text.startswith("<") else f"p = {text}"


def differences(judged: JudgedTable) -> list[Section]:
    """Return the section that compares rows with the reference; [] if no row has several seeds."""
    table, reference = judged.table, judged.table.reference
    parts: list[str] = []
    compared: dict[tuple[str, str], Estimate] = {}
    for attention in [*table.attentions, *table.extra_attentions]:
        found, spread = judged.against(attention), judged.spread(attention)
        if not found or spread is None:
            continue
        compared |= {(attention, row): one for row, one in found.items()}
        listed = {row: one for row, one in found.items() if one.seeds or row in table.row_names}
        resolution = _resolution(judged, attention, spread)
        parts.append(f"**{table.name_of(attention).capitalize()}**: {resolution}")
        own = deviation(judged.rows(attention)[reference]) or 0.0
        if own > MOST_SPREAD * spread.deviation and not all(one.seeds for one in found.values()):
            parts[-1] += (
                f" `{reference}` varies more than the pooled deviation says: for rows with fewer "
                "than three seeds p is too small, and too many differences count as significant."
            )
        listed = {row: listed[row] for row in (*table.row_names, *listed) if row in listed}
        parts += [_against_table(table, listed)] if listed else []
    if not parts:
        return []
    summary = _how_compared(table, compared)
    return [Section(f"Differences from `{reference}`", [summary, *parts])]


def _how_compared(table: Table, compared: Mapping[tuple[str, str], Estimate]) -> str:
    """Describe the tests of differences from the reference, by attention and row."""
    beyond = [one for (_, row), one in compared.items() if row not in table.row_names]
    families = " over the paper's rows and, separately, over the others" if beyond else ""
    text = (
        f"{table.ranked_by.label} of each row minus that of `{table.reference}`, with the 95 % "
        "interval of a paired t-test over the seeds that both have. p, unlike the interval, is "
        f"after Holm's correction{families}; {MARK}: p < 0.05."
    )
    if not all(one.seeds for one in compared.values()):
        text += (
            f" Rows with fewer than three common seeds (`{DASH}`) are tested by the standard "
            "deviation between seeds pooled over all rows, which is too small for a row that "
            "varies more than others, and too large for one that varies less."
        )
    if not all(one.seeds for one in beyond):
        text += " Rows beyond the paper with so few are not listed."
    return text


def _shown(table: Table, row: str) -> str:
    """Return the name of a row in the page's first table."""
    return table.row(row).label if table.is_printed else f"`{row}`"


def _against_table(table: Table, found: dict[str, Estimate]) -> str:
    digits = table.ranked_by.digits
    lines = [
        [
            _shown(table, row),
            str(one.seeds or DASH),
            f"{one.effect:+z.{digits}f}{MARK if one.is_significant else ''}",
            interval(one, digits),
            probability(one.adjusted),
        ]
        for row, one in found.items()
    ]
    return markdown_table(["Method", "seeds", "difference", "95 % interval", "p"], lines, left=1)


def _resolution(judged: JudgedTable, attention: str, spread: Spread) -> str:
    digits = judged.table.ranked_by.digits
    found = ((deviation(seeds), row) for row, seeds in judged.rows(attention).items())
    rows = sorted((size, row) for size, row in found if size is not None)
    ends = [f"{size:.{digits}f} for `{row}`" for size, row in (rows[0], rows[-1])]
    apart = f"; from {ends[0]} to {ends[1]}" if len(rows) > 1 else ""
    return (
        f"the standard deviation between seeds of a row is {spread.deviation:.{digits}f} (pooled "
        f"over rows, {spread.freedom} degrees of freedom{apart}). Two rows with one seed each "
        f"differ with p < 0.05, before correction, if they are {spread.resolution():.{digits}f} "
        "or more apart."
    )


def marks(judged: JudgedTable) -> list[Section]:
    """Return the section on the paper's marks of significance; [] without marks."""
    table = judged.table
    if not table.mark:
        return []
    parts = [
        f"In each cell the paper's {MARK} / our two-sided p of the difference from "
        f"`{table.reference}`, and in brackets this p after Holm's correction over the paper's "
        f"rows, which decides our {MARK}. `{DASH}`: no mark in the paper, or no p here: no run, "
        "or no row with several seeds."
    ]
    for attention in table.attentions:
        found = {c.metric: judged.against(attention, c.metric) for c in table.columns}
        lines = [
            [
                _shown(table, row.name),
                *(_mark(row, attention, c, found[c.metric]) for c in table.columns),
            ]
            for row in table.rows
            if row.name != table.reference
        ]
        labels = [column.label for column in table.columns]
        parts.append(markdown_table(["Method", *labels], lines, left=1))
    return [Section("Marks of significance", parts)]


def _mark(row: Row, attention: str, column: Column, found: Mapping[str, Estimate]) -> str:
    number, ours = row.paper.get(attention, {}).get(column.metric), found.get(row.name)
    paper = MARK if number is not None and number.is_marked else DASH
    if ours is None or ours.p is None:
        return f"{paper} / {DASH}"
    is_worse = (ours.effect < 0) == column.higher_is_better
    side = "worse, " if is_worse else ""
    return f"{paper} / {side}{probability(ours.p)} ({probability(ours.adjusted)})"


def orderings(judged: JudgedTable) -> list[Section]:
    """Return the section on the paper's orderings; [] if no two rows can be compared.

    Where no row beats its column's best baseline, the section says so instead of an ordering.
    """
    table = judged.table
    found = [judged.agreement(attention) for attention in table.attentions]
    found = [agreement for agreement in found if agreement.pairs]
    if not found:
        return []
    if all(judged.spread(one.attention) is None for one in found):
        return [Section("Orderings of the paper", [f"{UNTESTED.capitalize()}."])]
    summary = (
        f"Rows ranked by {table.ranked_by.label}: neighbours in the paper's ranking, and each row "
        f"with `{table.reference}`. A gap is how much worse the paper's lower-ranked row is. "
        "The paper's order *holds* or is *reversed* where p < 0.05 after Holm's correction, over "
        f"the pairs with `{table.reference}`, {'those with `none`, ' * (NONE in table.row_names)}"
        "or all others. Elsewhere the rows *tie*, which does not mean that they are equal: the "
        "interval, without that correction, says how far apart they may be."
    )
    parts = [summary, *(_agreement(judged, agreement) for agreement in found)]
    parts += [text for a in table.attentions if (text := _without(judged, a))]
    return [Section("Orderings of the paper", parts)]


def _agreement(judged: JudgedTable, agreement: Agreement) -> str:
    table = judged.table
    name = f"**{table.name_of(agreement.attention).capitalize()}**"
    if judged.spread(agreement.attention) is None:
        return f"{name}: {UNTESTED}."
    lost = judged.no_row_above_baseline(agreement.attention, table.ranked_by)
    if lost:
        return f"{name}: {lost}, so no ordering is claimed."
    line = (
        f"{name}, {len(agreement.pairs)} pairs of rows: the paper's order holds in "
        f"{agreement.count(True)} and is reversed in {agreement.count(False)}; "
        f"{agreement.count(None)} tie."
    )
    best = judged.unbeaten(agreement.attention)
    if len(best) < len(agreement.ranking):
        line += f" Rows of the paper that no other of its rows significantly beats: {_names(best)}."
    lines, digits = [], table.ranked_by.digits
    words = {True: "holds", False: "reversed", None: TIE}
    sign = ">" if table.ranked_by.higher_is_better else "<"
    for pair in agreement.listed_pairs(table.reference):
        better, worse = _shown(table, pair.better), _shown(table, pair.worse)
        lines.append(
            [
                f"{better} {sign} {worse}",
                f"{pair.paper_gap:.{digits}f}",
                str(pair.gap.seeds or DASH),
                f"{pair.gap.effect:+z.{digits}f}",
                interval(pair.gap, digits),
                probability(pair.gap.adjusted),
                words[pair.holds],
            ]
        )
    gap = ["gap in the paper", "seeds", "gap here", "95 % interval", "p"]
    page = markdown_table(["the paper's order", *gap, "here"], lines, left=1)
    return f"{line}\n\n{page}"


def _without(judged: JudgedTable, attention: str) -> str:
    table, found = judged.table, judged.against_none(attention)
    if not found:
        return ""
    better, ties, worse = (found.get(word, []) for word in (BETTER, TIE, WORSE))
    whose = "`none`" if NONE in table.row_names else "`none`, not in the paper"
    count = len(better) + len(ties) + len(worse)
    text = f"{len(better)} of {count} rows are significantly better"
    text += f"; ties: {_names(ties)}" if ties else ""
    text += f"; worse: {_names(worse)}" if worse else ""
    name = table.name_of(attention).capitalize()
    apart = f", without `{table.reference}`, whose p is above" * (table.reference != NONE)
    return (
        f"**{name} against no position encoding** ({whose}): {text}. "
        f"Holm's correction covers the paper's rows and, separately, the others{apart}."
    )


def _names(rows: Sequence[str]) -> str:
    return ", ".join(f"`{row}`" for row in rows)


def within_rows(judged: JudgedTable) -> list[Section]:
    """Return a section for each of `table.reference_attentions` that has results."""
    table, sections = judged.table, []
    for reference in table.reference_attentions:
        found = judged.within_rows(reference)
        if not found:
            continue
        attentions = list(dict.fromkeys(attention for _, attention in found))
        lines = [
            [_shown(table, row), *(_cell(table, found.get((row, a))) for a in attentions)]
            for row in dict.fromkeys(row for row, _ in found)
        ]
        against = table.name_of(reference)
        summary = (
            f"{table.ranked_by.label} of each row minus that of the same row with {against}, with "
            "its 95 % interval: of a paired t-test over three common seeds or more, else by the "
            "standard deviation between seeds pooled over all rows. "
            f"{MARK}: p < 0.05 after Holm's correction over this table."
        )
        header = ["Method", *(table.word_of(attention) for attention in attentions)]
        page = markdown_table(header, lines, left=1)
        sections.append(Section(f"Differences from {against}", [summary, page]))
    return sections


def _cell(table: Table, one: Estimate | None) -> str:
    if one is None:
        return DASH
    digits = table.ranked_by.digits
    sure = "" if one.low is None else f" ({interval(one, digits)})"
    return f"{one.effect:+z.{digits}f}{MARK if one.is_significant else ''}{sure}"
