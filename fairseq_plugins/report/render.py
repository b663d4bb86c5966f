"""A table's page: the paper's numbers and ours first, then differences, figure and baselines."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.pages import (
    Page,
    Section,
    bullets,
    figure_section,
    provenance_section,
    site_link,
)
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import MARK, Figure, Row, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Study
from fairseq_plugins.report.baselines import baselines_section
from fairseq_plugins.report.captions import MOST_COLUMNS, caption
from fairseq_plugins.report.differences import differences, marks, orderings, within_rows
from fairseq_plugins.report.lines import Line, Number, lines_of
from fairseq_plugins.report.observations import (
    observations,
    short_sample_sentences,
    valid_bleu_both_ways,
)
from fairseq_plugins.statistics.judged import JudgedTable

Lines = Mapping[tuple[str, str], Line]  # by row and attention


def study_section(study: Study, scale: str, changes: Sequence[str]) -> Section:
    """Return the section that lists the changes of a study to a scale's recipe."""
    lines = [f"`{change}`" for change in changes]
    if study.data is not None:
        lines.insert(0, f"data: `{study.data.name}`")
    about = (
        "These changes are the same for every row. The paper's numbers are of other data, and not "
        "shown. The page Compare of the site (`fairseq-pe report`) has the difference of every two "
        "rows."
    )
    heading = f"Changes to the recipe of scale `{scale}`"
    return Section(heading, [bullets(lines) or "None.", about])


def render(
    judged: JudgedTable,
    scale: str,
    left_out: Sequence[str] = (),
    study: Study | None = None,
    missing_rows: Sequence[str] = (),
    *,
    changes: Sequence[str] = (),
    has_figure: bool = True,
) -> Page:
    """Make the page of a table.

    left_out: sentences on results that are not shown. study: whose page it is, None for a scale's.
    missing_rows: sentences on the paper's rows without a result. changes: of the study to the
    recipe, each ``key: recipe -> here``.
    """
    table, results = judged.table, judged.results
    name = study.name if study else scale
    title = f"study `{name}`, from scale `{scale}`" if study else f"scale `{name}`"
    about = caption(table, scale, results, is_study=bool(study), missing_rows=missing_rows)
    notes = [*(f"Left out: {sentence}" for sentence in left_out), *about.notes]
    lines = lines_of(judged)
    result = [*main_tables(judged, lines), bullets(about.legend)]
    result += ["**Notes**", bullets(notes)] if notes else []
    sections = _further_rows(judged, lines)
    sections += [study_section(study, scale, changes)] if study else []
    sections += comparisons(judged)
    if results and has_figure and is_installed("matplotlib"):
        note = EXPERIMENTS[table.experiment].figure_note
        sections.append(figure_section(table.source, name, note))
    sections += baselines_section(judged)
    if results:
        what = "these tables to sort, with the runs behind each number, their commands and settings"
        link = site_link(f"{table.name}-{name}.html", what)
        sections.append(provenance_section(bullets(about.provenance), link))
    return Page(f"{table.source}, {title}", about.headline, [*filter(None, result)], sections)


def figure_page(
    table: Table, figure: Figure, scale: str, results: Sequence[Result], *, is_study: bool = False
) -> Page:
    """Make the page of a figure that has a page of its own.

    scale: its name, or a study's.
    """
    about = caption(table, scale, results, is_study=is_study)
    anchor = f"figures.html#{table.name}-{scale}-{figure.kind}"
    result = [
        f"![{figure.source}]({scale}.png)",
        f"As [SVG]({scale}.svg); the numbers are in [{scale}.json]({scale}.json); the runs are "
        f"those of [{table.source}](../{table.name}/{scale}.md).",
    ]
    notes = Section("Notes", [bullets(about.notes)])
    origin = provenance_section(
        bullets(about.provenance), site_link(anchor, "the figure, whose lines can be hidden")
    )
    title = f"{figure.source}, {'study' if is_study else 'scale'} `{scale}`"
    return Page(title, about.headline, result, [notes, origin])


def comparisons(judged: JudgedTable) -> list[Section]:
    """Return the sections after the main table: further evaluations, then comparisons of rows."""
    sections = []
    experiment = EXPERIMENTS[judged.table.experiment]
    for suffix, heading in experiment.further_evaluations(judged.results):
        other = JudgedTable.of(judged.table, judged.results, suffix)
        lines = lines_of(other)
        sections += [Section(heading, main_tables(other, lines))]
        sections += _further_rows(other, lines, level=3)
    return [
        *sections,
        *valid_bleu_both_ways(judged),
        *observations(judged),
        *short_sample_sentences(judged),
        *within_rows(judged),
        *differences(judged),
        *orderings(judged),
        *marks(judged),
    ]


def _further_rows(judged: JudgedTable, lines: Lines, level: int = 2) -> list[Section]:
    """Return the sections with the rows beyond the paper, and under further attentions."""
    table, sections = judged.table, []
    done = {row for row, attention in judged.cells if attention in table.attentions}
    if beyond := sorted(done - set(table.row_names)):
        own = _our_table(table, lines, beyond, table.attentions)
        sections.append(Section("Rows beyond the paper", [own], level=level))
    for attention, heading in table.extra_attentions.items():
        rows = sorted(row for row, a in judged.cells if a == attention)
        if rows:
            page = _our_table(table, lines, rows, [attention])
            sections.append(Section(heading, [page], level=level))
    return sections


def main_tables(judged: JudgedTable, lines: Lines) -> list[str]:
    """Make the tables of the paper's rows, in its order: one, or one for each attention.

    If the paper has no numbers, only ours are shown.
    """
    table = judged.table
    if not table.is_printed:
        done = [
            row.name for row in table.rows if any((row.name, a) in lines for a in table.attentions)
        ]
        return [_our_table(table, lines, done, table.attentions)]
    if len(table.columns) <= MOST_COLUMNS:
        return [_one_table(table, lines)]
    parts, labels = [], [column.label for column in table.columns]
    for attention in table.attentions:
        rows = []
        for words, row in _labelled(table):
            numbers = _numbers(table, lines, row.name, attention)
            rows.append([*words, *(f"{one.paper or DASH} / {_ours(one)}" for one in numbers)])
        page = markdown_table(["", "Method", *labels], rows, left=2)
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


def _one_table(table: Table, lines: Lines) -> str:
    """Make a table with all attentions side by side, each with the paper's numbers and ours."""
    header, ranked = ["", "Method"], table.ranked_by
    for attention in table.attentions:
        paper = [f"paper {column.label}" for column in table.printed_columns]
        ours = [f"ours {column.label}" for column in table.columns]
        header += [f"{table.word_of(attention).capitalize()}: {paper[0]}", *paper[1:], *ours]
        header += [f"difference, {ranked.label}"]
    rows = []
    for words, row in _labelled(table):
        for attention in table.attentions:
            found = _numbers(table, lines, row.name, attention)
            numbers = dict(zip(table.columns, found, strict=True))
            words += [numbers[column].paper or DASH for column in table.printed_columns]
            words += [_ours(number) for number in numbers.values()]
            own = numbers[ranked]
            if own.order is None or own.paper_order is None:
                words.append(DASH)
            else:
                words.append(f"{own.order - own.paper_order:+z.{ranked.digits}f}")
        rows.append(words)
    return markdown_table(header, rows, left=2)


def _our_table(table: Table, lines: Lines, names: Sequence[str], attentions: Sequence[str]) -> str:
    """Make the table of some rows without the paper's numbers, under attentions with results."""
    header = ["Method"]
    ran = [a for a in attentions if any((name, a) in lines for name in names)] or attentions
    for attention in ran:
        first, *rest = (column.label for column in table.columns)
        header += [f"{table.word_of(attention).capitalize()}: {first}", *rest]
    rows = [
        [f"`{name}`", *(_ours(one) for a in ran for one in _numbers(table, lines, name, a))]
        for name in names
    ]
    return markdown_table(header, rows, left=1)


def _numbers(table: Table, lines: Lines, row: str, attention: str) -> list[Number]:
    """Return the numbers of a cell in the order of the columns, empty ones without a line."""
    line = lines.get((row, attention))
    return [line.numbers[c.metric] if line else Number() for c in table.columns]


def _ours(number: Number) -> str:
    return f"{number.ours or DASH}{MARK if number.mark else ''}"
