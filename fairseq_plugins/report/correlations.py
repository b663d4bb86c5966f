"""Correlations of attention's properties with performance: the BERT paper's Table 5."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.report_view import figure_markdown, site_link
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers.bert_correlations import (
    PERFORMANCES,
    PRINTED,
    PROPERTIES,
    ROWS,
    SOURCE,
    WITHOUT,
)
from fairseq_plugins.papers.tables import MARK, Column
from fairseq_plugins.report.differences import DASH, interval
from fairseq_plugins.report.markup import write_page
from fairseq_plugins.statistics.comparisons import Cells, rows_of
from fairseq_plugins.statistics.correlations import (
    ATTENTION,
    LEAST_ROWS,
    RATIO,
    Correlated,
    MetricPair,
    correlate,
    lost_columns,
    over_rows,
    seed_of_the_start,
)
from fairseq_plugins.statistics.floors import Floors

PAGE = "bert_table5"
DIGITS = 2


def write_correlations(
    root: Path,
    scale: str,
    cells: Mapping[str, Cells],
    floors: Mapping[str, Floors],
    printed: Mapping[str, Cells],
) -> Path:
    """Write bert_table5/<scale>.md, .json and .png, and return the page's path below `root`.

    Args:
        root: the repository.
        scale: scale of the results.
        cells: cells by table.
        floors: baselines by table.
        printed: cells of the paper's own tables.
    """
    ours, theirs = correlate(cells), correlate(printed)
    page = root_folder("results") / PAGE / f"{scale}.md"
    notes = explain(ours, theirs, lost_columns(cells, floors), cells)
    write_page(root / page, render(scale, ours, theirs, notes))
    write_json(root / page.with_suffix(".json"), as_data(scale, ours, theirs))
    if is_installed("matplotlib"):
        from fairseq_plugins.report.correlations_figure import draw_correlations

        estimates = {pair: one.estimate for pair, one in ours.items()}
        draw_correlations(root / page.with_suffix(""), scale, estimates)
    return page


def as_data(
    scale: str, ours: Mapping[MetricPair, Correlated], theirs: Mapping[MetricPair, Correlated]
) -> dict[str, Any]:
    """Return all numbers of the page as JSON data."""
    return {
        "what": "Pearson correlations over rows between a property and a performance",
        "scale": scale,
        "correlations": [
            {
                "property": own.metric,
                "performance": column.metric,
                "table": table,
                "printed": _printed(own, column),
                "from_printed_tables": _effect(theirs[own.metric, column.metric]),
                "rows": list(found.rows),
                "ours": None if found.estimate is None else asdict(found.estimate),
            }
            for own in PROPERTIES
            for table, column in PERFORMANCES
            for found in [ours[own.metric, column.metric]]
        ],
    }


def render(
    scale: str,
    ours: Mapping[MetricPair, Correlated],
    theirs: Mapping[MetricPair, Correlated],
    notes: Sequence[str],
) -> str:
    """Render the page.

    Args:
        scale: scale of the results.
        ours: correlations of the results.
        theirs: correlations of the paper's own Tables 2 to 4.
        notes: sentences of `explain`.
    """
    header = ["", *(column.label for column in PROPERTIES)]

    def lines(cell: Any) -> list[list[str]]:
        return [
            [column.label, *(cell(own, column) for own in PROPERTIES)] for _, column in PERFORMANCES
        ]

    def both(own: Column, column: Column) -> str:
        printed, found = _printed(own, column), ours[own.metric, column.metric].estimate
        paper = DASH if printed is None else f"{printed:+.{DIGITS}f}"
        apart = MARK if found is not None and found.is_apart else ""
        return f"{paper} / {_number(ours[own.metric, column.metric])}{apart}"

    def sure(own: Column, column: Column) -> str:
        found = ours[own.metric, column.metric].estimate
        return DASH if found is None else interval(found, DIGITS)

    def again(own: Column, column: Column) -> str:
        return _number(theirs[own.metric, column.metric])

    parts = [
        f"# {SOURCE}, scale `{scale}`",
        "Pearson correlations between how far a row's attention violates a property (of direction "
        "balance, the ratio itself) "
        f"([Table 2](../bert_table2/{scale}.md)) and how well the row does on a task "
        f"([Table 3](../bert_table3/{scale}.md), [Table 4](../bert_table4/{scale}.md)). Negative: "
        "rows that violate the property more are worse.",
        "\n".join(f"- {note}" for note in notes),
        *([figure_markdown(SOURCE, scale)] if is_installed("matplotlib") else []),
        site_link(f"{PAGE}-{scale}.html"),
        "**The paper's number / ours**",
        markdown_table(header, lines(both), left=1),
        "## Intervals of ours",
        "95 %, by Fisher's transformation, over the rows as examples of their kind: what seeds do "
        "to a row is in it only as noise between rows.",
        markdown_table(header, lines(sure), left=1),
        "## From the paper's own tables",
        "The same computation on the numbers that the paper prints in its Tables 2 to 4, which are "
        "rounded, for every column. Where Table 5 has a number, the two differ by at most "
        f"{_largest_difference(theirs):.2f}.",
        markdown_table(header, lines(again), left=1),
    ]
    return "\n\n".join(parts) + "\n"


def explain(
    ours: Mapping[MetricPair, Correlated],
    theirs: Mapping[MetricPair, Correlated],
    lost: Mapping[str, str],
    cells: Mapping[str, Cells],
) -> list[str]:
    """Explain the rows, marks and gaps of the correlations.

    Args:
        ours: correlations of the results.
        theirs: correlations of the paper's own Tables 2 to 4.
        lost: result of `lost_columns`.
        cells: cells by table.
    """
    sizes = sorted({len(one.rows) for one in ours.values()})
    counts = str(sizes[-1]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    missing = [row for row in ROWS if not any(row in one.rows for one in ours.values())]
    notes = [
        f"Over {counts} of the paper's {len(ROWS)} embeddings, those of which results are there. "
        f"As in the paper, `{WITHOUT}` is left out: its numbers are so far away that it would make "
        "any correlation large."
    ]
    if missing:
        notes.append(f"Without results: {', '.join(f'`{row}`' for row in missing)}.")
    notes.append(
        "The paper does not say whether SQuAD counts F1 or exact matches (EM): its numbers are "
        "those of exact matches."
    )
    notes.append(
        f"`{DASH}` is not in the paper; or here fewer than {LEAST_ROWS} rows, or a side that is "
        f"the same in all rows. {MARK} differs from 0 (p < 0.05, with Holm's correction over all "
        f"{sum(one.estimate is not None for one in ours.values())} correlations)."
    )
    kept = [
        (pair, PRINTED[pair[0]][pair[1]].mean, one.estimate.effect)
        for pair, one in ours.items()
        if one.estimate is not None and pair[1] in PRINTED[pair[0]]
    ]
    same = sum(paper * effect > 0 for _, paper, effect in kept)
    if kept:
        notes.append(
            f"Of the {len(kept)} correlations that the paper prints and that are there, {same} "
            "have its sign; by itself that says little where an interval holds 0."
        )
    if balance := _as_distance(cells):
        notes.append(balance)
    if lost:
        names = "; ".join(lost.values())
        notes.append(
            "A task on which no row beats what needs no model says nothing of the rows, and so "
            f"does a correlation with it: {names}."
        )
    return notes


def _as_distance(cells: Mapping[str, Cells]) -> str:
    """Describe correlations with the distance of direction balance from 1; "" if none is below."""
    own = rows_of(cells.get("bert_table2", {}), ATTENTION, RATIO)
    ratios = [one for row in ROWS if (one := seed_of_the_start(own.get(row, {}))) is not None]
    below = sum(ratio < 1 for ratio in ratios)
    if not below:
        return ""
    found = {
        column.label: over_rows(
            cells, ("bert_table2", RATIO), (table, column.metric), ATTENTION, ROWS, _from_one
        ).estimate
        for table, column in PERFORMANCES
        if column.metric in PRINTED[RATIO]
    }
    correlations = [
        f"{label} {one.effect:+.{DIGITS}f} ({interval(one, DIGITS)})"
        for label, one in found.items()
        if one is not None
    ]
    if not correlations:
        return ""
    return (
        "Direction balance is met at 1, and the paper speaks of violating it, but its numbers are "
        "of the ratio: nearly all of its rows are above 1, where a larger ratio is a larger "
        f"violation. Here {below} of {len(ratios)} rows are below 1. Of the distance from 1 in "
        f"place of the ratio, without Holm's correction: {', '.join(correlations)}."
    )


def _from_one(ratio: float) -> float:
    return abs(ratio - 1)


def _printed(own: Column, column: Column) -> float | None:
    number = PRINTED[own.metric].get(column.metric)
    return None if number is None else number.mean


def _effect(one: Correlated) -> float | None:
    return None if one.estimate is None else one.estimate.effect


def _number(one: Correlated) -> str:
    effect = _effect(one)
    return DASH if effect is None else f"{effect:+.{DIGITS}f}"


def _largest_difference(theirs: Mapping[MetricPair, Correlated]) -> float:
    """Return the largest difference between Table 5 and correlations of the paper's tables."""
    pairs = [
        (effect, number.mean)
        for own, numbers in PRINTED.items()
        for metric, number in numbers.items()
        if (effect := _effect(theirs[own, metric])) is not None
    ]
    return max(abs(one - other) for one, other in pairs)
