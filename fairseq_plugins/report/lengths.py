"""The figure of perplexity beyond the training length, and by position in the window."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Picture
from matplotlib.ticker import StrMethodFormatter

from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.extrapolation import SLIDING
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.figure import stem
from fairseq_plugins.report.row_panels import add_legend, draw_rows, labels_of, make_panels, styles
from fairseq_plugins.statistics.series import Lines, Points, length_lines, longest_places

MOST = 4.0  # a line may leave the picture above this multiple of the others' highest value
FEW = 3  # most lines that may leave the picture


def draw_lengths(
    folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw two panels for each attention as PNG and SVG, and write a JSON of the numbers."""
    base = stem(folder, table, figure, scale)
    by_length, by_position = length_lines(results), longest_places(results)
    numbers: dict[str, Any] = {
        "what": "by row and attention, means over seeds: pairs of a length, or of the middle of a "
        "part of the window, in training lengths, and of the perplexity there",
        "windows": _as_data(by_length),
        "sliding": _as_data(length_lines(results, SLIDING)),
    }
    windows: dict[int, dict[tuple[str, str], Points]] = {}
    for factor, lines in by_position.values():
        windows.setdefault(factor, {}).update(lines)
    numbers |= {f"by_position_{factor}x": _as_data(lines) for factor, lines in windows.items()}
    write_json(base.with_suffix(".json"), numbers)
    picture = lengths_picture(table, by_length, by_position)
    picture.suptitle(f"{table.source}, scale {scale}")
    save_picture(picture, base)


def lengths_picture(
    table: Table, by_length: Lines, by_position: Mapping[str, tuple[int, Lines]]
) -> Picture:
    """Draw perplexity by length, and below by position in the longest window with numbers.

    by_position: by attention, see `longest_places`. Attentions without numbers have no panels.
    """
    labels = labels_of(table, by_length, table.attentions)
    picture, (tops, bottoms, legends) = make_panels(labels, 2, sharey="row")
    drawn = styles({row for row, _ in by_length})
    in_windows = {key: line for _, lines in by_position.values() for key, line in lines.items()}
    for panels, lines in ((tops, by_length), (bottoms, in_windows)):
        for panel, attention in zip(panels, labels, strict=True):
            draw_rows(panel, table, lines, attention, drawn)
            panel.set_title(f"{attention} attention")
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
            panel.grid(alpha=0.3, which="both")
        panels[0].set_ylabel("perplexity")
        panels[0].set_ylim(top=highest_shown([*lines.values()]))
    for top, legend in zip(tops, legends, strict=True):
        top.set_xscale("log", base=2)
        top.xaxis.set_major_formatter(StrMethodFormatter("{x:g}x"))
        top.set_xlabel("length of the window, in training lengths")
        add_legend(legend, top)
    for bottom, attention in zip(bottoms, labels, strict=True):
        if attention in by_position:
            longest, _ = by_position[attention]
            bottom.set_xlabel(f"place in a window of {longest}x, in training lengths")
            bottom.axvline(1.0, color="grey", linewidth=0.8)
    return picture


def _as_data(lines: Lines) -> dict[str, list[list[float]]]:
    return {
        f"{row}-{attention}": [[x, round(value, 4)] for x, value in line]
        for (row, attention), line in sorted(lines.items())
    }


def highest_shown(lines: Sequence[Points]) -> float | None:
    """Return the upper limit of a panel; None to show all lines whole.

    Lines far above all others are cut off: at most `FEW`, and at most one in five.
    """
    peaks = sorted(max(value for _, value in line) for line in lines)
    for few in range(min(FEW, len(peaks) // 5), 0, -1):
        if peaks[-few] > MOST * peaks[-few - 1]:
            return 1.1 * peaks[-few - 1]
    return None
