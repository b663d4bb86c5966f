"""The figures of a table as PNG and SVG, and the JSON of their numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from fairseq_plugins.analysis.figure_files import write_numbers
from fairseq_plugins.common.files import with_ending, write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.experiments.identical_words import PATTERN
from fairseq_plugins.papers.extrapolation import SLIDING
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.dots import OF_DOTS
from fairseq_plugins.report.panels import Panel, four_digits, panels_of
from fairseq_plugins.statistics.comparisons import deviation, gather
from fairseq_plugins.statistics.inference import Seeds
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import (
    Lines,
    Points,
    length_lines,
    longest_places,
    part_lines,
)

DIGITS = 6  # decimals of means in JSON
ACROSS = 7  # small multiples side by side
WIDTH, HEIGHT, SMALL = 13.0, 4.2, 1.3  # inches: of a picture, of a panel, of a line of small ones
_OWN, _OTHERS, _REFERENCE = "#1d4ed8", "#e4e8ed", "#3b4252"
MAPS_ACROSS = 4  # maps of attention side by side
BLACKEST = 99  # percentile of a map's weights that is drawn black
MEASURES = ("valid_loss", "v1_exact", "v1_f1", "v2_exact", "v2_f1")


def draw_figure(
    folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw a figure as PNG and SVG, and write a JSON of its numbers.

    folder: of all results. figure: no map of attention. results: at least one.
    """
    base = stem(folder, table, figure, scale)
    write_json(with_ending(base, ".json"), _DATA[figure.kind](table, results))
    title = f"{figure.source or table.source}, scale {scale}"
    if figure.kind in OF_DOTS:
        picture = OF_DOTS[figure.kind](JudgedTable.of(table, results))
        picture.suptitle(title)
    else:
        picture = draw_panels(panels_of(table, figure.kind, results), title)
    save_picture(picture, base)


def stem(folder: Path, table: Table, figure: Figure, scale: str) -> Path:
    """Return the path of a figure's files without a suffix; `folder` has all results."""
    return folder / (figure.name or table.name) / scale


def draw_panels(panels: Sequence[Panel], title: str) -> Picture:
    """Draw panels below each other, those with many lines as small multiples."""
    downs = [math.ceil(len(panel.lines) / ACROSS) for panel in panels]
    heights = [
        0.6 + SMALL * down if panel.is_crowded else HEIGHT
        for panel, down in zip(panels, downs, strict=True)
    ]
    picture = Picture(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    picture.suptitle(title)
    if not panels:  # no run has a number to draw
        return picture
    axes = picture.subplots(len(panels), 1, squeeze=False, height_ratios=heights).ravel()
    for axis, panel in zip(axes, panels, strict=True):
        (_draw_small if panel.is_crowded else _draw_together)(axis, panel)
    return picture


def _draw_small(axis: Any, panel: Panel) -> None:
    """Draw a small panel for each line, beside the reference and the range of all lines."""
    places = [divmod(i, ACROSS) for i in range(len(panel.lines))]

    def in_cell(points: Sequence[tuple[float, float]], row: int, column: int) -> Points:
        return [(column + 0.03 + 0.9 * u, row + 0.93 - 0.68 * v) for u, v in points]

    def in_all(points: Sequence[tuple[float, float]]) -> list[Points]:
        return [in_cell(points, *place) for place in places]

    axis.add_collection(PolyCollection(in_all(panel.band()), facecolors=_OTHERS))
    reference = panel.lines.get(panel.reference)
    if reference is not None:
        found = in_all(panel.scaled(reference))
        axis.add_collection(
            LineCollection(found, colors=_REFERENCE, linewidths=0.9, linestyles="--")
        )
    own = [
        in_cell(panel.scaled(line), *at)
        for at, line in zip(places, panel.lines.values(), strict=True)
    ]
    axis.add_collection(LineCollection(own, colors=_OWN, linewidths=1.8))
    axis.plot(*zip(*(line[-1] for line in own if line), strict=True), "o", color=_OWN, markersize=3)
    if panel.rule is not None:
        *_, bottom, top = panel.ends
        ends = panel.scaled([(panel.rule, bottom), (panel.rule, top)])
        axis.add_collection(LineCollection(in_all(ends), colors="grey", linewidths=0.6))
    for (row, column), (label, points) in zip(places, panel.lines.items(), strict=True):
        text = f"{label}  {four_digits(points[-1][1])}"
        size = 7.5 * min(1, 27 / len(text))  # within its column
        axis.text(column + 0.03, row + 0.2, text, fontsize=size)
    first, last, low, high = panel.end_labels()
    down = places[-1][0]
    words: dict[str, Any] = {"fontsize": 6.5, "color": _REFERENCE}
    axis.text(0.03, down + 1, first, va="top", **words)
    axis.text(0.93, down + 1, last, va="top", ha="right", **words)
    for row in range(down + 1):
        axis.text(0.01, row + 0.93, low, ha="right", va="bottom", **words)
        axis.text(0.01, row + 0.25, high, ha="right", va="top", **words)
    axis.set_xlim(-0.2, ACROSS)
    axis.set_ylim(down + 1.2, 0)
    axis.set_axis_off()
    note = f"grey: all rows{f'; dashed: {panel.reference}' if reference is not None else ''}"
    axis.set_title(f"{panel.title}: {panel.y} by {panel.x} ({note})", fontsize=9.5, loc="left")


def _draw_together(axis: Any, panel: Panel) -> None:
    """Draw all lines in one panel, with the legend beside it."""
    for label, points in panel.lines.items():
        colour = f"C{sorted(panel.lines).index(label)}"  # the same in every panel of these rows
        words = {"color": colour, "marker": "o", "markersize": 3.5, "label": label}
        axis.plot(*zip(*points, strict=True), "-", **words)
    _set_scales(axis, panel)
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x, fontsize=9)
    axis.set_ylabel(panel.y, fontsize=9)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # hiding no line


def _set_scales(axis: Any, panel: Panel) -> None:
    axis.grid(alpha=0.3)
    if panel.log_x:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}x"))
    if panel.log_y:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    if panel.ticks:
        points = [x for line in panel.lines.values() for x, _ in line]
        shown = {x: t for x, t in panel.ticks.items() if any(abs(x - at) < 0.5 for at in points)}
        axis.set_xticks([*shown], [*shown.values()], fontsize=8)
    if panel.rule is not None:
        axis.axvline(panel.rule, color="grey", linewidth=0.8)
    low, high = axis.get_ylim()
    if high - low < panel.span:
        middle = (low + high) / 2
        axis.set_ylim(middle - panel.span / 2, middle + panel.span / 2)


def summary(seeds: Seeds) -> dict[str, float | int | None]:
    """Return a cell's mean, deviation and number of seeds, for JSON."""
    spread = deviation(seeds)
    return {
        "mean": round(fmean(seeds.values()), DIGITS),
        "deviation": None if spread is None else round(spread, DIGITS),
        "seeds": len(seeds),
    }


def _as_data(lines: Lines) -> dict[str, list[list[float]]]:
    return {
        f"{row}-{attention}": [[x, round(value, 4)] for x, value in line]
        for (row, attention), line in sorted(lines.items())
    }


def _summaries(table: Table, results: Sequence[Result], by: str) -> dict[str, Any]:
    """Return the ranking column; `by` names the keys of its cells."""
    ranked = table.ranked_by
    cells = gather(results, [ranked])
    return {
        "what": f"{ranked.label} by {by}: mean, standard deviation and number of seeds",
        "rows": {"-".join(at): summary(cell[ranked.metric]) for at, cell in sorted(cells.items())},
    }


def _curves(table: Table, results: Sequence[Result]) -> dict[str, Any]:
    runs = {f"{r['row']}-{r['attention']}-s{r['seed']}": r["metrics"]["curve"] for r in results}
    what = "pairs of updates and validation loss in bits per masked token"
    return {"what": what, "curves": runs}


def _lengths(table: Table, results: Sequence[Result]) -> dict[str, Any]:
    windows: dict[int, dict[tuple[str, str], Any]] = {}
    for factor, lines in longest_places(results).values():
        windows.setdefault(factor, {}).update(lines)
    return {
        "what": "by row and attention, means over seeds: pairs of a length, or of the middle of a "
        "part of the window, in training lengths, and of the perplexity there",
        "windows": _as_data(length_lines(results)),
        "sliding": _as_data(length_lines(results, SLIDING)),
        **{f"by_position_{factor}x": _as_data(lines) for factor, lines in windows.items()},
    }


def _parts(table: Table, results: Sequence[Result]) -> dict[str, Any]:
    parts = results[0]["metrics"]["parts"]
    return {
        "what": "by row and attention, means over seeds: what was measured after each part of the "
        "pre-training; F1 and exact matches in per cent, the loss in bits per masked token",
        "samples": [part["samples"] for part in parts],
        "updates": [part["updates"] for part in parts],
        **{
            measure: {
                name: [value for _, value in line]
                for name, line in _as_data(part_lines(results, measure)).items()
            }
            for measure in MEASURES
        },
    }


def _buckets(table: Table, results: Sequence[Result]) -> dict[str, Any]:
    cells = gather(results, table.columns)
    labels = {column.metric: column.label for column in table.columns}
    return {
        "what": "BLEU of all sentences and by the words of the source, by row and attention: "
        "mean, standard deviation and number of seeds; sentences: how many there are",
        "sentences": results[0]["metrics"]["sentences"],
        "rows": {
            "-".join(at): {
                label: summary(cell[metric]) for metric, label in labels.items() if metric in cell
            }
            for at, cell in sorted(cells.items())
        },
    }


_DATA: dict[str, Callable[[Table, Sequence[Result]], dict[str, Any]]] = {
    "ranking": lambda table, results: _summaries(table, results, "row and attention"),
    "settings": lambda table, results: _summaries(table, results, "row and setting"),
    "curves": _curves,
    "lengths": _lengths,
    "parts": _parts,
    "buckets": _buckets,
}


def draw_attention(
    root: Path, folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw a panel for each row (lowest seed), the paper's first, as PNG, SVG and rounded JSON.

    Weights are in the runs' folders, not in results: unless those of all the paper's rows exist,
    the existing figure is kept. Other rows are drawn if their weights exist.
    """
    runs: dict[str, Run] = {}
    for result in sorted(results, key=lambda result: result["seed"]):
        run = Run(table.name, scale, result["row"], result["attention"], result["seed"])
        runs.setdefault(run.row, run)
    own = [name for name in table.row_names if name in runs]
    files = {row: root / run.folder / PATTERN for row, run in runs.items()}
    available = {row for row, file in files.items() if file.is_file()}
    if not available or not available.issuperset(own):
        return
    rows = [*own, *sorted(available - {*own})]
    maps = {row: np.load(files[row]) for row in rows}
    numbers = {
        f"{row}-{runs[row].attention}-s{runs[row].seed}": torch.from_numpy(weights)
        for row, weights in maps.items()
    }
    picture = draw_maps({table.row(row).label: weights for row, weights in maps.items()})
    picture.suptitle(f"{figure.source}, scale {scale}")
    base = stem(folder, table, figure, scale)
    what = "weights of attention by run: a line for each query, a number for each key"
    write_numbers(with_ending(base, ".json"), {"what": what, "weights": numbers})
    save_picture(picture, base)


def draw_maps(maps: Mapping[str, np.ndarray]) -> Picture:
    """Draw weights of attention (T, T) by title, the darker the larger their root."""
    lines = math.ceil(len(maps) / MAPS_ACROSS)
    picture = Picture(figsize=(3 * MAPS_ACROSS, 0.6 + 3.2 * lines), layout="constrained")
    picture.supxlabel("position of the key", fontsize=9)
    picture.supylabel("position of the query", fontsize=9)
    panels = picture.subplots(lines, MAPS_ACROSS, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, (title, weights) in zip(panels, maps.items(), strict=False):
        darkest = float(np.percentile(weights, BLACKEST))
        panel.set_axis_on()
        shades = PowerNorm(0.5, vmin=0.0, vmax=darkest, clip=True)
        panel.imshow(weights, cmap="Greys", norm=shades, interpolation="nearest")
        panel.set_title(title, fontsize=8)
        panel.tick_params(labelsize=6)
    return picture
