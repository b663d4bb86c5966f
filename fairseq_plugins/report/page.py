"""Brings a table's page up to date with the results that are there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fairseq_plugins.common.root import nearest_configs, place
from fairseq_plugins.common.tables import columns
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.rows import known_rows
from fairseq_plugins.experiments.training import PretrainedModel
from fairseq_plugins.papers.tables import Table, without_paper
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe import differences
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run, Study
from fairseq_plugins.report.absent import absences
from fairseq_plugins.report.differences import DASH
from fairseq_plugins.report.markup import write_page
from fairseq_plugins.report.render import AboutStudy, render
from fairseq_plugins.statistics.comparisons import Cells, gather, mean


@dataclass(frozen=True)
class Report:
    """results/<table>/<scale>.md and .png, each time made anew from the JSON files.

    Results of another experiment than the present configs/ are left out, and named. A study has
    its name in place of the scale's.

    all_results: their folder, to be joined to the root; None for `place("results")`.
    """

    root: Path
    table: Table
    scale: Scale
    study: Study | None = None
    all_results: Path | None = None

    @property
    def name(self) -> str:
        """Of the scale, or of the study."""
        return self.study.name if self.study else self.scale.name

    @property
    def page(self) -> Path:
        """To be joined to the root."""
        return self.folder.with_name(f"{self.name}.md")

    @property
    def folder(self) -> Path:
        """That of its results, to be joined to the root."""
        return self._all_results / self.table.name / self.name

    @property
    def _all_results(self) -> Path:
        return self.all_results or place("results")

    @property
    def shown_table(self) -> Table:
        """The table; of a study without the paper's numbers, which are of other data."""
        return without_paper(self.table) if self.study else self.table

    def make(self) -> list[str]:
        """Render the page and draw its figures; a sentence on each result that is left out.

        Once more where another process has written a result meanwhile: its page, with that result,
        may be the one that this page has taken the place of.
        """
        while True:
            there = self._files()
            shown, left_out = self.read()
            self._write(shown, left_out)
            self._draw(shown)
            if self._files() == there:
                return left_out

    def _files(self) -> dict[str, int]:
        """When each result there is was written."""
        found = (self.root / self.folder).glob("*.json")
        return {path.name: path.stat().st_mtime_ns for path in found if path.is_file()}

    def write(self) -> None:
        """Render the page alone."""
        self._write(*self.read())

    def _write(self, shown: Sequence[Result], left_out: Sequence[str]) -> None:
        about, absent = self._about(shown), self.absent(shown)
        page = render(self.shown_table, self.scale.name, shown, left_out, about, absent)
        write_page(self.root / self.page, page)

    def absent(self, shown: Sequence[Result]) -> list[str]:
        """Why rows of the paper are not among the results to show."""
        return absences(nearest_configs(self.root), self.shown_table, self.scale.name, shown)

    def _about(self, shown: Sequence[Result]) -> AboutStudy | None:
        """What the page says of a study."""
        if self.study is None:
            return None
        told: dict[str, None] = {}
        for result in shown:
            run = results.run_of(result)
            recipe = plan_run(nearest_configs(self.root), replace(run, study=None), Devices(gpus=0))
            told |= dict.fromkeys(differences(recipe.config, result["config"]))
        return AboutStudy(self.study.name, self.scale.name, self.study.data, [*told])

    def _draw(self, shown: Sequence[Result]) -> None:
        """Draw the figures, where matplotlib is installed and anything is done."""
        if not shown:
            return
        try:
            from fairseq_plugins.report.buckets import draw_buckets
            from fairseq_plugins.report.curves import draw_curves
            from fairseq_plugins.report.figure import draw_ranking
            from fairseq_plugins.report.lengths import draw_lengths
            from fairseq_plugins.report.parts import draw_parts
            from fairseq_plugins.report.patterns import draw_attention
            from fairseq_plugins.report.settings import draw_settings
        except ImportError:
            return
        draw: dict[str, Callable[..., None]] = {
            "ranking": draw_ranking,
            "curves": draw_curves,
            "attention": partial(draw_attention, self.root),
            "lengths": draw_lengths,
            "parts": draw_parts,
            "buckets": draw_buckets,
            "settings": draw_settings,
        }
        folder = self.root / self._all_results
        for figure in self.table.figures:
            if figure.kind == "attention" and self._all_results != place("results"):
                continue  # it is of the weights beside these results, in another folder
            draw[figure.kind](folder, self.shown_table, figure, self.name, shown)

    def read(self) -> tuple[list[Result], list[str]]:
        """The results to show, and a sentence on each of the others."""
        shown: list[Result] = []
        left_out: list[str] = []
        for result in results.read_results(
            self.root / self.folder,
            EXPERIMENTS[self.table.experiment].metrics,
            lambda text: left_out.append(f"{text}."),
        ):
            run = results.run_of(result)
            reason = self._reason_to_leave_out(run, result)
            if reason:
                left_out.append(f"`{run.name}`, made by another experiment ({reason}).")
            else:
                shown.append(result)
        if not shown:
            return shown, left_out
        newest = PretrainedModel.of(max(shown, key=lambda result: result["finished_at"])["config"])
        others = [result for result in shown if PretrainedModel.of(result["config"]) != newest]
        left_out += [
            f"`{results.run_of(result).name}`, which starts from another model than the newest."
            for result in others
        ]
        return [result for result in shown if result not in others], left_out

    def _reason_to_leave_out(self, run: Run, result: Result) -> str:
        configs = nearest_configs(self.root)
        if run.row not in known_rows(self.table, configs):
            return f"there is no row {run.row}"
        run = replace(run, scale=self.scale.name, study=self.study)
        planned = plan_run(configs, run, Devices(gpus=0), PretrainedModel.of(result["config"]))
        data = planned.describe_data(self.root)
        return "; ".join(results.mismatch(result, run, planned.config, data)[:3])

    def text(self) -> str:
        """What ranks the rows, for a terminal: paper, ours and difference."""
        shown, _ = self.read()
        cells = gather(shown, [self.table.ranked_by])
        words = ("paper", "ours", "diff") if self.shown_table.is_printed else ("ours",)
        header = ["row", *(f"{a}: {word}" for a in self.table.attentions for word in words)]
        done = (row for row, _ in cells)
        own = [] if self.study else self.table.row_names
        names = list(dict.fromkeys([*own, *sorted(done)]))
        lines = [header, *(self._line(name, cells) for name in names)]
        return columns(lines, left=1)

    def _line(self, name: str, cells: Cells) -> list[str]:
        line, metric = [name], self.table.ranked_by.metric
        digits = self.table.ranked_by.digits
        for attention in self.table.attentions:
            paper = self.table.row(name).paper.get(attention, {}).get(metric)
            cell = cells.get((name, attention))
            ours = mean(cell[metric].values()) if cell else None
            own = f"{ours:.{digits}f}" if ours is not None else DASH
            if not self.shown_table.is_printed:
                line.append(own)
                continue
            line += [
                f"{paper.mean:.{digits}f}" if paper else DASH,
                own,
                f"{ours - paper.mean:+.{digits}f}" if paper and ours is not None else DASH,
            ]
        return line
