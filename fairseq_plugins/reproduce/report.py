"""Brings a table's page up to date with the results that are there."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.reproduce import provenance, results
from fairseq_plugins.reproduce.commands import Run
from fairseq_plugins.reproduce.orderings import Cells, gather, mean
from fairseq_plugins.reproduce.plan import compose_run, set_run
from fairseq_plugins.reproduce.render import DASH, render
from fairseq_plugins.reproduce.results import Result
from fairseq_plugins.reproduce.tables import ATTENTIONS, Scale, Table, runnable_rows


@dataclass(frozen=True)
class Report:
    """results/<table>/<scale>.md and .png, each time made anew from the JSON files.

    Results of another experiment than the present configs/ are left out, and named.
    """

    root: Path
    table: Table
    scale: Scale

    @property
    def page(self) -> Path:
        """Relative to the repository."""
        return Path("results", self.table.name, f"{self.scale.name}.md")

    def write(self) -> None:
        """Render the page."""
        page = render(self.table, self.scale.name, *self.read())
        results.write_text(self.root / self.page, page)

    def draw(self) -> None:
        """Draw the figure, where matplotlib is installed and anything is done."""
        shown, _ = self.read()
        if not shown:
            return
        try:
            from fairseq_plugins.reproduce.figure import draw
        except ImportError:
            return
        draw(self.table, self.scale.name, shown, (self.root / self.page).with_suffix(".png"))

    def read(self) -> tuple[list[Result], list[str]]:
        """The results to show, and a sentence on each of the others."""
        shown, left_out = [], []
        for result in results.read_results(self.root, self.table.name, self.scale.name):
            run = Run(*(result[key] for key in ("table", "scale", "row", "attention", "seed")))
            reason = self._reason_to_leave_out(run, result)
            if reason:
                left_out.append(f"`{run.name}`, made by another experiment ({reason}).")
            else:
                shown.append(result)
        return shown, left_out

    def _reason_to_leave_out(self, run: Run, result: Result) -> str:
        configs = self.root / "configs"
        if run.row not in runnable_rows(configs):
            return f"there is no row {run.row}"
        any_cell = Run(run.table, run.scale, run.row, ATTENTIONS[0], 1)  # composed once per row
        config = set_run(compose_run(configs, any_cell), run)
        folder = self.root / config["task"]["data"]
        data = None if provenance.missing_data(folder) else provenance.describe_data(folder)
        return "; ".join(results.mismatch(result, run, config, data)[:3])

    def text(self) -> str:
        """The test perplexities for a terminal: paper, ours and difference."""
        shown, _ = self.read()
        cells = gather(shown)
        header = ["row", *(f"{a}: {w}" for a in ATTENTIONS for w in ("paper", "ours", "diff"))]
        done = (row for row, _ in cells)
        names = list(dict.fromkeys([*self.table.row_names, *sorted(done)]))
        lines = [header, *(self._line(name, cells) for name in names)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        return "\n".join(
            "  ".join(
                word.ljust(width) if i == 0 else word.rjust(width)
                for i, (word, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def _line(self, name: str, cells: Cells) -> list[str]:
        line = [name]
        for attention in ATTENTIONS:
            paper = self.table.row(name).paper.get(attention)
            cell = cells.get((name, attention))
            ours = mean(cell.test) if cell else None
            line += [
                f"{paper.test:.2f}" if paper else DASH,
                f"{ours:.2f}" if ours is not None else DASH,
                f"{ours - paper.test:+.2f}" if paper and ours is not None else DASH,
            ]
        return line
