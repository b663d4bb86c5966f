"""Pages and figures of tables, of one and of all, and a table's text for a terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.parallel import map_in_processes
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.common.tables import DASH, columns
from fairseq_plugins.papers.bert_correlations import TABLES as CORRELATED
from fairseq_plugins.papers.tables import Figure
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.correlations import Correlations
from fairseq_plugins.report.lines import Number, lines_of
from fairseq_plugins.report.render import figure_page, render
from fairseq_plugins.statistics.table_results import (
    TableFolder,
    TableResults,
    find_tables,
    read_numbers,
)


@dataclass(frozen=True)
class Report(TableFolder):
    """The page results/<table>/<scale>.md and its figures, made from the JSON files of runs."""

    @property
    def page(self) -> Path:
        """The page's path below the root."""
        return self.folder.with_name(f"{self.name}.md")

    def make(self) -> TableResults:
        """Write the page and draw its figures; return the results that they show.

        Repeats if another process wrote a result meanwhile, whose page this one may have replaced.
        """
        while True:
            before = self.files()
            found = self.read()
            self._draw(found.shown)
            self._write(found)
            if self.files() == before:
                return found

    def write(self) -> None:
        """Write the page without its figures; none of a study that has nothing to show."""
        found = self.read()
        if found.shown or self.study is None:
            self._write(found)

    def _write(self, found: TableResults) -> None:
        page = render(
            found.judged,
            self.scale.name,
            found.left_out,
            self.study,
            found.missing_rows,
            changes=self.changes(found.shown) if self.study else (),
            has_figure=any(map(self._is_drawn, self.table.figures)),
        )
        page.write(self.root / self.page)

    def _is_drawn(self, figure: Figure) -> bool:
        """Return whether the page shows a figure, which is drawn with a file of its numbers."""
        if figure.name:
            return False  # on a page of its own
        return (self.root / self.folder.with_name(f"{self.name}.json")).is_file()

    def _draw(self, shown: Sequence[Result]) -> None:
        """Draw the figures, if matplotlib is installed and there are results."""
        if not shown or not is_installed("matplotlib"):
            return
        from fairseq_plugins.report.figures import draw_attention, draw_figure

        folder = self.root / self.results
        for figure in self.table.figures:
            if figure.kind != "attention":
                draw_figure(folder, self.shown_table, figure, self.name, shown)
            elif self.results == root_folder("results"):  # else its weights are elsewhere
                draw_attention(self.root, folder, self.shown_table, figure, self.name, shown)
            if figure.name:
                of_study = self.study is not None
                page = figure_page(self.shown_table, figure, self.name, shown, is_study=of_study)
                page.write(folder / figure.name / f"{self.name}.md")

    def text(self, found: TableResults) -> str:
        """Format the ranking column for a terminal: paper, ours and difference."""
        judged = found.judged
        column, is_printed = self.table.ranked_by, self.shown_table.is_printed
        numbers = {at: line.numbers[column.metric] for at, line in lines_of(judged).items()}
        words = ("paper", "ours", "diff") if is_printed else ("ours",)
        lines = [["row", *(f"{a}: {word}" for a in self.table.attentions for word in words)]]
        done = sorted(row for (row, _), number in numbers.items() if number.ours)
        for name in dict.fromkeys([*judged.table.row_names, *done]):
            line = [name]
            for attention in self.table.attentions:
                number = numbers.get((name, attention), Number())
                paper, ours = number.paper_order, number.order
                gap = None if paper is None or ours is None else ours - paper
                around = [
                    DASH if value is None else f"{value:{sign}z.{column.digits}f}"
                    for value, sign in ((paper, ""), (gap, "+"))
                ]
                shown = number.ours or DASH
                line += [around[0], shown, around[1]] if is_printed else [shown]
            lines.append(line)
        return columns(lines, left=1)


def write_table_pages(root: Path, say: Callable[[str], None]) -> list[Path]:
    """Render page and figures of every table, scale and study; return the pages below `root`.

    say: called with a sentence on each result that is left out.
    """
    pages = []
    reports: list[Report] = []
    for found in find_tables(root):
        if isinstance(found, TableFolder):
            reports.append(Report(**vars(found)))
        else:
            for sentence in found.left_out:
                say(sentence)
    for page, left_out in map_in_processes(_write, reports):
        pages.append(page)
        for sentence in left_out:
            say(f"Left out of {page}: {sentence}")
    return pages


def _write(report: Report) -> tuple[Path, list[str]]:
    return report.page, [*report.make().left_out]


def write_correlations_page(root: Path, scale: str) -> Path | None:
    """Render the BERT paper's Table 5 at a scale; return its page, or None without results.

    It needs properties, of the first table, and performances, of one of the others.
    """
    found = read_numbers(root, CORRELATED, scale).get(scale)
    if found is None or CORRELATED[0].name not in found.cells or len(found.cells) == 1:
        return None
    return Correlations(scale, found).write(root)
