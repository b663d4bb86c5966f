"""Panels with a line for each row, and a legend for each attention."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from matplotlib.figure import Figure as Picture
from matplotlib.textpath import TextPath

from fairseq_plugins.papers.tables import Table
from fairseq_plugins.statistics.series import Lines

WIDTH, HEIGHT = 8.0, 5.0  # inches of a panel
_LINE = 0.22  # least inches of height per line
_FONT = 9  # points of a legend's text
_ENTRY = 1.6 * _FONT / 72  # inches per line of a legend
_COLOURS = 10  # matplotlib's default colours


def styles(rows: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Choose colour, dash and marker by row; up to 160 rows look different."""
    found = {}
    for i, row in enumerate(sorted(rows)):
        again, colour = divmod(i, _COLOURS)
        found[row] = {
            "color": f"C{colour}",
            "linestyle": ("-", "--", ":", "-.")[again % 4],
            # Dashes are hard to see where lines cross, so that markers differ too.
            "marker": "osx^"[(again + again // 4) % 4],
            "markersize": 3.5,
            "linewidth": 1.2,
        }
    return found


def labels_of(table: Table, lines: Lines, attentions: Sequence[str]) -> dict[str, list[str]]:
    """Return row labels by attention, without attentions that have no rows (unless none has)."""
    every = {a: [table.row(row).label for row, own in lines if own == a] for a in attentions}
    return {a: labels for a, labels in every.items() if labels} or every


def make_panels(
    labels: Mapping[str, Sequence[str]], count: int, **options: Any
) -> tuple[Picture, list[Sequence[Any]]]:
    """Make a picture with `count` panels for each attention, and a panel for the legend below.

    Args:
        labels: legend entries by attention.
        count: number of panels below each other.
        options: options of matplotlib's `subplots`.

    Returns:
        The picture, and the panels of each line of the grid, the last one for legends.
    """
    entries = max(ceil(len(own) / legend_columns(own)) for own in labels.values())
    height = max(HEIGHT, _LINE * max(map(len, labels.values())))
    heights = [*[height] * count, _ENTRY * (entries + 2)]
    size = (WIDTH * len(labels), sum(heights) + 0.5)
    picture = Picture(figsize=size, layout="constrained")
    grid = picture.subplots(count + 1, len(labels), squeeze=False, height_ratios=heights, **options)
    return picture, list(grid)


def legend_columns(labels: Sequence[str]) -> int:
    """Choose how many columns a legend has: three if the labels are short enough."""
    texts = [TextPath((0, 0), label, size=_FONT).get_extents().width for label in labels]
    width = (max(texts, default=0) + 5 * _FONT) / 72  # inches, with a piece of line and gaps
    return max(1, min(3, int(WIDTH / width)))


def draw_rows(
    panel: Any,
    table: Table,
    lines: Lines,
    attention: str,
    drawn: Mapping[str, Mapping[str, Any]],
) -> None:
    """Draw a line for each row of an attention, the highest at the end first."""
    own = {row: line for (row, a), line in lines.items() if a == attention}
    for row in sorted(own, key=lambda name: -own[name][-1][1]):
        x, values = zip(*own[row], strict=True)
        panel.plot(x, values, label=table.row(row).label, **drawn[row])


def add_legend(target: Any, panel: Any) -> None:
    """Draw the legend of `panel` in a panel of its own, where it covers no line."""
    lines, labels = panel.get_legend_handles_labels()
    target.axis("off")
    target.legend(
        lines,
        labels,
        title="the line that ends highest first",
        fontsize=_FONT,
        title_fontsize=_FONT,
        loc="upper center",
        ncols=legend_columns(labels),
    )
