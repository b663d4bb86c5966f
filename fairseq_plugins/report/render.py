"""A table's Markdown: the paper's numbers, ours and the difference, and which orderings hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.report_view import figure_of, view_of
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import MARK, Column, Printed, Row, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.beyond_training import what_is_seen
from fairseq_plugins.report.captions import caption
from fairseq_plugins.report.differences import DASH, differences, marks, orderings
from fairseq_plugins.report.floors import floors_section
from fairseq_plugins.report.short_samples import what_short_samples_show
from fairseq_plugins.report.within_rows import within_rows
from fairseq_plugins.statistics.comparisons import Cells, against, deviation, gather, mean
from fairseq_plugins.statistics.floors import examples_of, floors_of
from fairseq_plugins.statistics.inference import Seeds

MOST_COLUMNS = 3  # of an attention, for both attentions to stand in one table

# What differs from the reference row beyond chance: (row, attention, metric).
Apart = frozenset[tuple[str, str, str]]


@dataclass(frozen=True)
class AboutStudy:
    """What a page says of a study: whose recipe it has, and what differs from that.

    differences: each ``key: recipe -> here``.
    """

    name: str
    scale: str
    data: Path | None
    differences: Sequence[str]

    @property
    def text(self) -> str:
        """The section on it."""
        lines = [f"- `{difference}`" for difference in self.differences]
        if self.data is not None:
            lines.insert(0, f"- data: `{self.data.name}`")
        told = "\n".join(lines) or "Nothing."
        return (
            f"## What differs from the recipe at scale `{self.scale}`\n\n{told}\n\n"
            "The same for every row. The paper's numbers are of other data, and not shown."
        )


def render(
    table: Table,
    scale: str,
    results: Sequence[Result],
    left_out: Sequence[str],
    study: AboutStudy | None = None,
    absent: Sequence[str] = (),
) -> str:
    """The whole Markdown page.

    results: the runs to show. left_out: sentences about results that were not shown. absent: on
    the paper's rows that have no number here.
    """
    cells = gather(results, table.columns)
    title = f"study `{study.name}`, from scale `{scale}`" if study else f"scale `{scale}`"
    about = caption(table, scale, results, is_study=bool(study), absent=absent)
    parts = [f"# {table.source}, {title}", about]
    parts += [study.text] if study else []
    parts += [f"Left out: {sentence}" for sentence in left_out]
    parts += _views(table, study.name if study else scale, results)
    parts += _rows(table, cells, "## ")
    for attention, heading in table.extra_attentions.items():
        rows = sorted(row for row, a in cells if a == attention)
        if rows:
            own = ours_table(table, rows, [attention], cells, _apart(table, cells, [attention]))
            parts += [f"## {heading}", own]
    for suffix, heading in EXPERIMENTS[table.experiment].further_evaluations(results):
        wider = gather(results, table.columns, suffix)
        parts += [f"## {heading}", *_rows(table, wider, "### ")]
    parts += what_is_seen(table, results)
    floors = floors_of(table, results)
    parts += what_short_samples_show(table, cells, floors)
    parts += floors_section(table, cells, floors, examples_of(table, results))
    parts += within_rows(table, cells)
    parts += [*marks(table, cells), *differences(table, cells)]
    parts += orderings(table, cells, floors)
    return "\n\n".join(parts) + "\n"


def _rows(table: Table, cells: Cells, heading: str) -> list[str]:
    """The tables of all rows under the table's attentions; heading: the marks of a heading."""
    apart = _apart(table, cells, table.attentions)
    parts = main_tables(table, cells, apart)
    done = {row for row, attention in cells if attention in table.attentions}
    if beyond := sorted(done - set(table.row_names)):
        own = ours_table(table, beyond, table.attentions, cells, apart)
        parts += [f"{heading}Rows beyond the paper", own]
    return parts


def _views(table: Table, name: str, results: Sequence[Result]) -> list[str]:
    """The figure, which is drawn where matplotlib is, and where else this page can be seen."""
    if not results:
        return []
    parts = []
    if is_installed("matplotlib") and any(not figure.name for figure in table.figures):
        parts.append(figure_of(table.source, name))
    what = (
        "the same to sort and to filter, with the runs behind each number, their commands and "
        "settings"
    )
    return [*parts, view_of(f"{table.name}-{name}.html", what)]


def cell_text(seeds: Seeds | None, digits: int = 2) -> str:
    """Mean, +- standard deviation and number of seeds: "81.20 ± 0.31 (3)"."""
    if not seeds:
        return DASH
    spread = deviation(seeds)
    if spread is None:
        return f"{mean(seeds.values()):.{digits}f} (1)"
    return f"{mean(seeds.values()):.{digits}f} ± {spread:.{digits}f} ({len(seeds)})"


def _apart(table: Table, cells: Cells, attentions: Sequence[str]) -> Apart:
    """What gets a dagger: the numbers that differ from the reference row's beyond chance."""
    return frozenset(
        (row, attention, column.metric)
        for attention in attentions
        for column in table.columns
        for row, gap in against(table, cells, attention, column.metric).items()
        if gap.is_apart
    )


def main_tables(table: Table, cells: Cells, apart: Apart) -> list[str]:
    """The paper's rows in the paper's order, under each attention.

    They are in one table, or where there are many columns in one for each attention. Without
    numbers in the paper there are ours only.
    """
    if not table.is_printed:
        shown = {row for row, attention in cells if attention in table.attentions}
        done = [row.name for row in table.rows if row.name in shown]
        return [ours_table(table, done, table.attentions, cells, apart)]
    if len(table.columns) <= MOST_COLUMNS:
        return [_one_table(table, cells, apart)]
    parts = []
    for attention in table.attentions:
        lines = [
            [*words, *(_pair(row, attention, column, cells, apart) for column in table.columns)]
            for words, row in _labelled(table)
        ]
        labels = [column.label for column in table.columns]
        page = markdown_table(["", "Method", *labels], lines, left=2)
        parts += [f"**{table.name_of(attention).capitalize()}**: the paper's number / ours", page]
    return parts


def _labelled(table: Table) -> list[tuple[list[str], Row]]:
    """Each row with its group, where that begins, and its label."""
    found, group = [], ""
    for row in table.rows:
        words = [row.group if row.group != group else "", f"{row.label} (`{row.name}`)"]
        found.append((words, row))
        group = row.group
    return found


def _one_table(table: Table, cells: Cells, apart: Apart) -> str:
    header = ["", "Method"]
    for attention in table.attentions:
        paper = [f"paper {column.label}" for column in table.printed_columns]
        ours = [f"ours {column.label}" for column in table.columns]
        header += [f"{table.word_of(attention).capitalize()}: {paper[0]}", *paper[1:], *ours]
        header += [f"difference, {table.ranked_by.label}"]
    lines = [
        [
            *words,
            *(text for a in table.attentions for text in _columns(table, row, a, cells, apart)),
        ]
        for words, row in _labelled(table)
    ]
    return markdown_table(header, lines, left=2)


def _columns(table: Table, row: Row, attention: str, cells: Cells, apart: Apart) -> list[str]:
    paper, cell = row.paper.get(attention, {}), cells.get((row.name, attention))
    texts = [_printed(paper.get(column.metric), column) for column in table.printed_columns]
    for column in table.columns:
        texts.append(_ours(row.name, attention, column, cells, apart))
    ranked = table.ranked_by.metric
    if cell is None or ranked not in cell or ranked not in paper:
        return [*texts, DASH]
    difference = mean(cell[ranked].values()) - paper[ranked].mean
    return [*texts, f"{difference:+.{table.ranked_by.digits}f}"]


def _pair(row: Row, attention: str, column: Column, cells: Cells, apart: Apart) -> str:
    paper = _printed(row.paper.get(attention, {}).get(column.metric), column)
    return f"{paper} / {_ours(row.name, attention, column, cells, apart)}"


def _printed(number: Printed | None, column: Column) -> str:
    return number.text(column.digits) if number else DASH


def _ours(row: str, attention: str, column: Column, cells: Cells, apart: Apart) -> str:
    text = cell_text(cells.get((row, attention), {}).get(column.metric), column.digits)
    return f"{text}{MARK}" if (row, attention, column.metric) in apart else text


def ours_table(
    table: Table,
    names: Sequence[str],
    attentions: Sequence[str],
    cells: Cells,
    apart: Apart,
) -> str:
    """Rows that the paper does not have: ours only."""
    header = ["Method"]
    for attention in attentions:
        first, *rest = (column.label for column in table.columns)
        header += [f"{table.word_of(attention).capitalize()}: {first}", *rest]
    lines = [
        [
            f"`{name}`",
            *(_ours(name, a, c, cells, apart) for a in attentions for c in table.columns),
        ]
        for name in names
    ]
    return markdown_table(header, lines, left=1)
