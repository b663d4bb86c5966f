"""Views of figures: interactive lines and heat maps, and all other figures as pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import read_object
from fairseq_plugins.common.matrices import is_packed, unpack
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.papers.tables import Figure
from fairseq_plugins.report.panels import Panel, panels_of, rankings_of, rows_ranked
from fairseq_plugins.site import charts
from fairseq_plugins.statistics.table_results import Evidence, TableResults

LEAST = 8  # least length of a matrix or list

# Axes (columns, rows) of matrices by key, as in the figures of `analysis`.
_OF_MATRICES = {
    "dot_products": ("position", "position"),
    "cosines": ("offset", "offset"),
    "position_position": ("position of the key", "position of the query"),
    "scores": ("position of the key", "position of the query"),
    "weights": ("position of the key", "position of the query"),
    "vectors": ("feature", "position"),  # by length
}
# Axes (x, y) of lists by key.
_OF_LISTS = {
    "by_offset": ("offset", "mean dot product"),
    "scores_by_offset": ("offset", "mean score"),
    "neighbours": ("offset", "cosine with the next one"),
    "psi": ("offset", "psi"),
    "waves": ("offset", "cos(w m)"),
    "frequencies": ("pair of features", "size of the frequency"),
}
_X_VALUES = {"offsets": "offset", "reaches": "largest offset"}  # lists of x values of others
_SIZES = ("frequencies",)  # on a logarithmic axis, whose cosine is that of their size
_SIGNED = ("by_offset", "scores_by_offset", "neighbours")  # offsets from the most negative on
_RELATIVE = "relative"  # in names of relative vectors


@dataclass(frozen=True)
class FigureView:
    """A figure."""

    name: str  # anchor on the page
    title: str
    panels: Sequence[tuple[str, charts.Chart]]  # titles and interactive charts
    pictures: Sequence[Path] = ()  # files below `results_of`, if there are no charts
    source: str = ""  # page or file of the numbers
    small: Sequence[Mapping[str, Any]] = ()  # small multiples of panels with many lines


def results_of(root: Path) -> Path:
    """Return the folder of all results."""
    return root / root_folder("results")


def ranking(found: TableResults) -> list[tuple[str, charts.Chart]]:
    """Make charts of a table's ranking under each attention with several rows."""
    x = found.table.ranked_by.label
    return [
        (title, charts.dots({title: dots}, [label for label, *_ in dots], x=x))
        for title, dots in rankings_of(found.judged).items()
        if len(dots) > 1
    ]


def figure_views(evidence: Evidence) -> list[FigureView]:
    """Make views of tables' figures other than rankings, then of all others in results/."""
    views = []
    for one in evidence.tables:
        for figure in one.table.figures:
            if one.shown and figure.kind == "settings":
                views.append(_of_settings(one, figure))
            elif one.shown and (panels := panels_of(one.table, figure.kind, one.shown)):
                views.append(_of_table(one, figure, panels))
    drawn = {one.table.name for one in evidence.tables}
    drawn |= {figure.name for one in evidence.tables for figure in one.table.figures}
    for folder in sorted(results_of(evidence.root).glob("*/")):
        if folder.name not in drawn:
            views += _of_folder(evidence.root, folder)
    for one in evidence.tables:
        if any(figure.kind == "attention" for figure in one.table.figures):
            views += _drawn(evidence.root, one)
    return views


def _of_table(found: TableResults, figure: Figure, panels: Sequence[Panel]) -> FigureView:
    return FigureView(
        f"{found.table.name}-{found.scale}-{figure.kind}",
        f"{figure.source or found.table.source}, {found.scale}",
        [(panel.title, charts.of_panel(panel)) for panel in panels],
        source=found.page,
        small=[charts.small_multiples(panel) for panel in panels if panel.is_crowded],
    )


def _of_settings(found: TableResults, figure: Figure) -> FigureView:
    """Make the view of all settings in one chart, with a line of it for each row."""
    rankings, column = rankings_of(found.judged), found.table.ranked_by.label
    chart = charts.dots(rankings, rows_ranked(found.judged, rankings), x=column)
    return replace(_of_table(found, figure, []), panels=[(column, chart)])


def _of_folder(root: Path, folder: Path) -> list[FigureView]:
    """Make views of a folder's figures that no table draws, from their JSON or pictures."""
    views = []
    for path in sorted(folder.glob("*.json")):
        panels = maps(read_object(path) or {})
        drawn = [] if panels else sorted(folder.glob("*.png"))
        pictures = [picture.relative_to(results_of(root)) for picture in drawn]
        if panels or pictures:
            name, source = f"{folder.name}-{path.stem}", f"results/{folder.name}/{path.name}"
            views.append(FigureView(name, _title(path), panels, pictures, source))
    return views


def _title(path: Path) -> str:
    """Return the title of a figure: that of the page beside its JSON, and the file's name."""
    try:
        first, *_ = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        first = ""
    name = path.parent.name.replace("_", " ")
    title = first.removeprefix("# ") if first.startswith("# ") else name[0].upper() + name[1:]
    is_named = path.stem == path.parent.name or f"`{path.stem}`" in title
    return title if is_named else f"{title}, {path.stem}"


def _drawn(root: Path, found: TableResults) -> list[FigureView]:
    path = found.files.with_name(f"{found.files.name}.png")
    if not (results_of(root) / path).is_file():
        return []
    title, name = f"{found.table.source}, {found.scale}", f"{found.table.name}-{found.scale}"
    return [FigureView(name, title, (), [path], found.page)]


def maps(content: Mapping[str, Any], above: str = "") -> list[tuple[str, charts.Chart]]:
    """Make charts of all matrices and lists in a figure's JSON, with their names.

    Args:
        content: a figure's JSON, or a part of it.
        above: names of the enclosing parts.
    """
    panels: list[tuple[str, charts.Chart]] = []
    xs = [(label, content[key]) for key, label in _X_VALUES.items() if key in content]
    for key, value in content.items():
        name = f"{above}: {_words(key)}" if above else _words(key)
        if is_packed(value):
            panels.append((name, _map(key, unpack(value).tolist(), above)))
        elif isinstance(value, Mapping) and value and all(map(_is_list, value.values())):
            panels.append((name, _lines(key, value, xs)))  # one chart for all lists
        elif isinstance(value, Mapping):
            panels += maps(value, f"{above}: {key}" if above else key)
        elif _is_matrix(value):
            panels.append((name, _map(key, value, above)))
        elif _is_list(value) and key not in _X_VALUES:
            panels.append((name, _lines(key, {_words(key): value}, xs)))
    return panels


def _map(key: str, matrix: list[list[float]], above: str) -> charts.Chart:
    around = above.rpartition(": ")[2]
    x, y = _OF_MATRICES.get(key) or _OF_MATRICES.get(around, ("column", "row"))
    if _RELATIVE in above:
        x, y = "offset", "offset"
    first = -(len(matrix) // 2) if x == "offset" else 0
    return charts.heat(matrix, x=x, y=y, first=first)


def _lines(
    key: str, found: Mapping[str, list[float]], xs: Sequence[tuple[str, list[float]]]
) -> charts.Chart:
    """Make a chart of lists, each over the x values beside them that are as many."""
    x, y = _OF_LISTS.get(key, ("index", _words(key)))
    series = {}
    for name, values in found.items():
        first = -(len(values) // 2) if key in _SIGNED else 0
        at: Sequence[float] = range(first, first + len(values))
        x, at = next(((label, known) for label, known in xs if len(known) == len(values)), (x, at))
        sizes = [abs(value) for value in values] if key in _SIZES else values
        series[name] = [*zip(at, sizes, strict=True)]
    return charts.lines(series, x=x, y=y, log_y=key in _SIZES)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _is_matrix(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= LEAST
        and all(_is_list(row) and len(row) == len(value[0]) for row in value)
    )


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= LEAST
        and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
    )
