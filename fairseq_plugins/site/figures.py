"""Views of figures: interactive lines and maps, and other figures as pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import root_folder
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.site import charts
from fairseq_plugins.site.maps import maps
from fairseq_plugins.statistics.comparisons import deviation, mean
from fairseq_plugins.statistics.series import Lines, length_lines, longest_places, mean_curves
from fairseq_plugins.statistics.table_results import Evidence, TableResults
from fairseq_plugins.statistics.timings import read_json


@dataclass(frozen=True)
class FigureView:
    """A figure.

    Attributes:
        name: anchor on the page.
        panels: titles and interactive charts.
        pictures: picture files below `results_of`, if there are no charts.
        source: page or file of the numbers.
    """

    name: str
    title: str
    panels: Sequence[tuple[str, charts.Chart]]
    pictures: Sequence[Path] = ()
    source: str = ""


def results_of(root: Path) -> Path:
    """Return the folder of all results."""
    return root / root_folder("results")


def ranking(found: TableResults) -> list[tuple[str, charts.Chart]]:
    """Make charts of a table's ranking under each attention, the best row on top."""
    table, column = found.table, found.table.ranked_by
    panels = []
    for attention in [*table.attentions, *table.extra_attentions]:
        rows = found.judged.rows(attention)
        sign = -1 if column.higher_is_better else 1
        names = sorted(rows, key=lambda row: sign * mean(rows[row].values()))
        if len(names) < 2:
            continue
        points = [
            (table.row(row).label, mean(rows[row].values()), deviation(rows[row])) for row in names
        ]
        chart = charts.dots({table.name_of(attention): points}, x=column.label)
        panels.append((table.name_of(attention), chart))
    return panels


def figure_views(evidence: Evidence) -> list[FigureView]:
    """Make views of tables' figures other than rankings, then of all others in results/."""
    views = []
    for one in evidence.tables:
        for figure in one.table.figures:
            if one.shown and figure.kind in ("curves", "lengths"):
                views.append(_of_table(one, figure))
    drawn = {one.table.name for one in evidence.tables}
    drawn |= {figure.name for one in evidence.tables for figure in one.table.figures}
    for folder in sorted(results_of(evidence.root).glob("*/")):
        if folder.name not in drawn:
            views += _of_folder(evidence.root, folder)
    for one in evidence.tables:
        if any(figure.kind in ("attention", "buckets") for figure in one.table.figures):
            views += _drawn(evidence.root, one)
    return views


def _of_table(found: TableResults, figure: Figure) -> FigureView:
    table, name = found.table, f"{found.table.name}-{found.scale}"
    if figure.kind == "curves":
        curves = mean_curves(found.shown)
        words = {"x": "updates", "y": "validation perplexity"}
        panels = _by_attention(table, curves, log_y=True, **words)
        title = figure.source or f"{table.source}: perplexity while training"
        return FigureView(f"{name}-curves", f"{title}, {found.scale}", panels, source=found.page)
    words = {"x": "length of the window, in training lengths", "y": "perplexity"}
    panels = _by_attention(table, length_lines(found.shown), log_x=True, log_y=True, **words)
    for factor, by_position in longest_places(found.shown).values():
        label = f"place in a window of {factor}x, in training lengths"
        panels += _by_attention(table, by_position, log_y=True, x=label, y="perplexity")
    return FigureView(name, f"{table.source}, {found.scale}", panels, source=found.page)


def _by_attention(table: Table, found: Lines, **words: Any) -> list[tuple[str, charts.Chart]]:
    panels = []
    for attention in [*table.attentions, *table.extra_attentions]:
        own = {row: line for (row, a), line in found.items() if a == attention and line}
        best_first = sorted(own, key=lambda row: own[row][-1][1])
        if own:
            series = {table.row(row).label: own[row] for row in best_first}
            panels.append((f"{attention} attention", charts.lines(series, **words)))
    return panels


def _of_folder(root: Path, folder: Path) -> list[FigureView]:
    """Make views of figures without runs, from their JSON or pictures."""
    views = []
    for path in sorted(folder.glob("*.json")):
        panels = maps(read_json(path) or {})
        pictures = [] if panels else _pictures(root, folder)
        if panels or pictures:
            name, source = f"{folder.name}-{path.stem}", f"results/{folder.name}/{path.name}"
            views.append(FigureView(name, _title(path), panels, pictures, source))
    return views


def _title(path: Path) -> str:
    """Return the title of the page beside a figure's JSON, with the file's name."""
    try:
        first, *_ = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        first = ""
    name = path.parent.name.replace("_", " ")
    title = first.removeprefix("# ") if first.startswith("# ") else name[0].upper() + name[1:]
    return title if path.stem == path.parent.name else f"{title}, {path.stem}"


def _drawn(root: Path, found: TableResults) -> list[FigureView]:
    path = found.files.with_name(f"{found.files.name}.png")
    if not (results_of(root) / path).is_file():
        return []
    title, name = f"{found.table.source}, {found.scale}", f"{found.table.name}-{found.scale}"
    return [FigureView(name, title, (), [path], found.page)]


def _pictures(root: Path, folder: Path) -> list[Path]:
    return [path.relative_to(results_of(root)) for path in sorted(folder.glob("*.png"))]
