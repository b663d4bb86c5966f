"""A table's Markdown page: the paper's numbers, ours, differences and orderings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.report_view import figure_markdown, site_link
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import MARK, Column, Printed, Row, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.beyond_training import observations
from fairseq_plugins.report.captions import caption
from fairseq_plugins.report.differences import DASH, differences, marks, orderings, within_rows
from fairseq_plugins.report.floors import floors_section
from fairseq_plugins.report.short_then_long import short_sample_sentences
from fairseq_plugins.report.token_bleu import valid_bleu_both_ways
from fairseq_plugins.statistics.comparisons import deviation, mean
from fairseq_plugins.statistics.inference import Seeds
from fairseq_plugins.statistics.judged import JudgedTable

MOST_COLUMNS = 3  # columns per attention up to which both attentions share a table


@dataclass(frozen=True)
class AboutStudy:
    """A custom run for its page: its base recipe and the changes to it.

    differences: each ``key: recipe -> here``.
    """

    name: str
    scale: str
    data: Path | None
    differences: Sequence[str]

    @property
    def text(self) -> str:
        """The section on the changes."""
        lines = [f"- `{difference}`" for difference in self.differences]
        if self.data is not None:
            lines.insert(0, f"- data: `{self.data.name}`")
        changes = "\n".join(lines) or "Nothing."
        return (
            f"## What differs from the recipe at scale `{self.scale}`\n\n{changes}\n\n"
            "The same for every row. The paper's numbers are of other data, and not shown. The "
            "page Compare of the site (`fairseq-pe report`) has the difference of every two rows."
        )


def render(
    judged: JudgedTable,
    scale: str,
    left_out: Sequence[str] = (),
    study: AboutStudy | None = None,
    missing_rows: Sequence[str] = (),
) -> str:
    """Render the Markdown page.

    Args:
        judged: the table with the results to show.
        scale: scale of the results.
        left_out: sentences on results that are not shown.
        study: changes to the recipe, on the page of a custom run.
        missing_rows: sentences on the paper's rows without a result.
    """
    table, results = judged.table, judged.results
    title = f"study `{study.name}`, from scale `{scale}`" if study else f"scale `{scale}`"
    about = caption(table, scale, results, is_study=bool(study), missing_rows=missing_rows)
    parts = [f"# {table.source}, {title}", about]
    parts += [study.text] if study else []
    parts += [f"Left out: {sentence}" for sentence in left_out]
    parts += _views(table, study.name if study else scale, results)
    parts += _rows(judged, "## ")
    for attention, heading in table.extra_attentions.items():
        rows = sorted(row for row, a in judged.cells if a == attention)
        if rows:
            parts += [f"## {heading}", ours_table(judged, rows, [attention])]
    for suffix, heading in EXPERIMENTS[table.experiment].further_evaluations(results):
        parts += [f"## {heading}", *_rows(JudgedTable.of(table, results, suffix), "### ")]
    parts += [*valid_bleu_both_ways(judged), *observations(judged)]
    parts += [*short_sample_sentences(judged), *comparisons(judged)]
    return "\n\n".join(parts) + "\n"


def comparisons(judged: JudgedTable) -> list[str]:
    """Write the sections on baselines, differences, marks and orderings."""
    return [
        *floors_section(judged),
        *within_rows(judged),
        *marks(judged),
        *differences(judged),
        *orderings(judged),
    ]


def _rows(judged: JudgedTable, heading: str) -> list[str]:
    """Write the tables of all rows, with headings "##" or "###"."""
    table, parts = judged.table, main_tables(judged)
    done = {row for row, attention in judged.cells if attention in table.attentions}
    if beyond := sorted(done - set(table.row_names)):
        own = ours_table(judged, beyond, table.attentions)
        parts += [f"{heading}Rows beyond the paper", own]
    return parts


def _views(table: Table, name: str, results: Sequence[Result]) -> list[str]:
    """Link the figure (if matplotlib is installed) and the site's page."""
    if not results:
        return []
    parts = []
    if is_installed("matplotlib") and any(not figure.name for figure in table.figures):
        parts.append(figure_markdown(table.source, name))
    what = (
        "the same to sort and to filter, with the runs behind each number, their commands and "
        "settings"
    )
    return [*parts, site_link(f"{table.name}-{name}.html", what)]


def cell_text(seeds: Seeds | None, digits: int = 2) -> str:
    """Format mean, standard deviation and number of seeds: "81.20 ± 0.31 (3)"."""
    if not seeds:
        return DASH
    spread = deviation(seeds)
    if spread is None:
        return f"{mean(seeds.values()):.{digits}f} (1)"
    return f"{mean(seeds.values()):.{digits}f} ± {spread:.{digits}f} ({len(seeds)})"


def main_tables(judged: JudgedTable) -> list[str]:
    """Write the paper's rows in the paper's order, in one table or in one per attention.

    If the paper has no numbers, only ours are shown.
    """
    table = judged.table
    if not table.is_printed:
        shown = {row for row, attention in judged.cells if attention in table.attentions}
        done = [row.name for row in table.rows if row.name in shown]
        return [ours_table(judged, done, table.attentions)]
    if len(table.columns) <= MOST_COLUMNS:
        return [_one_table(judged)]
    parts = []
    for attention in table.attentions:
        lines = [
            [*words, *(_pair(judged, row, attention, column) for column in table.columns)]
            for words, row in _labelled(table)
        ]
        labels = [column.label for column in table.columns]
        page = markdown_table(["", "Method", *labels], lines, left=2)
        parts += [f"**{table.name_of(attention).capitalize()}**: the paper's number / ours", page]
    return parts


def _labelled(table: Table) -> list[tuple[list[str], Row]]:
    """Return each row with its label, and its group if the row begins one."""
    found, group = [], ""
    for row in table.rows:
        words = [row.group if row.group != group else "", f"{row.label} (`{row.name}`)"]
        found.append((words, row))
        group = row.group
    return found


def _one_table(judged: JudgedTable) -> str:
    table, header = judged.table, ["", "Method"]
    for attention in table.attentions:
        paper = [f"paper {column.label}" for column in table.printed_columns]
        ours = [f"ours {column.label}" for column in table.columns]
        header += [f"{table.word_of(attention).capitalize()}: {paper[0]}", *paper[1:], *ours]
        header += [f"difference, {table.ranked_by.label}"]
    lines = [
        [
            *words,
            *(text for a in table.attentions for text in _columns(judged, row, a)),
        ]
        for words, row in _labelled(table)
    ]
    return markdown_table(header, lines, left=2)


def _columns(judged: JudgedTable, row: Row, attention: str) -> list[str]:
    table, paper = judged.table, row.paper.get(attention, {})
    cell = judged.cells.get((row.name, attention))
    texts = [_printed(paper.get(column.metric), column) for column in table.printed_columns]
    for column in table.columns:
        texts.append(_ours(judged, row.name, attention, column))
    ranked = table.ranked_by.metric
    if cell is None or ranked not in cell or ranked not in paper:
        return [*texts, DASH]
    difference = mean(cell[ranked].values()) - paper[ranked].mean
    return [*texts, f"{difference:+.{table.ranked_by.digits}f}"]


def _pair(judged: JudgedTable, row: Row, attention: str, column: Column) -> str:
    paper = _printed(row.paper.get(attention, {}).get(column.metric), column)
    return f"{paper} / {_ours(judged, row.name, attention, column)}"


def _printed(number: Printed | None, column: Column) -> str:
    return number.text(column.digits) if number else DASH


def _ours(judged: JudgedTable, row: str, attention: str, column: Column) -> str:
    """Format a cell, with a dagger where it differs significantly from the reference row."""
    seeds = judged.cells.get((row, attention), {}).get(column.metric)
    gap = judged.against(attention, column.metric).get(row)
    return cell_text(seeds, column.digits) + (MARK if gap and gap.is_apart else "")


def ours_table(judged: JudgedTable, names: Sequence[str], attentions: Sequence[str]) -> str:
    """Write the table of some rows without the paper's numbers."""
    table, header = judged.table, ["Method"]
    for attention in attentions:
        first, *rest = (column.label for column in table.columns)
        header += [f"{table.word_of(attention).capitalize()}: {first}", *rest]
    lines = [
        [
            f"`{name}`",
            *(_ours(judged, name, a, c) for a in attentions for c in table.columns),
        ]
        for name in names
    ]
    return markdown_table(header, lines, left=1)
