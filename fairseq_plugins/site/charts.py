"""Charts in Plotly's format: data and axes; the page sets the colours."""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from textwrap import wrap
from typing import Any

import numpy as np

from fairseq_plugins.report.panels import Panel, four_digits

Points = Sequence[tuple[float, float]]
Chart = dict[str, Any]
WIDTH, HEIGHT = 100, 60  # of a small panel
_TITLE_WIDTH = 40  # characters of an axis title in a line
_DASHES = ("solid", "dash", "dot", "dashdot")
_SHADES = 45  # steps of a colour map on either side of zero
_PERCENTILE, _FAR = 99, 1.5  # a map's scale ends at this percentile if the maximum is this far
_MOST_CELLS = 100  # in a row of a map
_ZERO = ord("P")  # a map's row is text, with a character per shade: "#" is -45, "}" is 45
# Characters that HTML would escape by six others; static/charts.js reverses the replacement.
_SHORTER = str.maketrans("<>&'", '~! "')


def lines(
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
    shown: Sequence[str] = (),
) -> Chart:
    """Make a chart of lines; if `shown` is not empty, other lines start hidden."""
    traces = []
    for i, (name, points) in enumerate(series.items()):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= 40 else "lines",
                "name": name,
                **_positions([_short(a) for a, _ in points]),
                "y": [_short(b) for _, b in points],
                "line": {"dash": _DASHES[i // 10 % len(_DASHES)], "width": 2},
                "visible": True if not shown or name in shown else "legendonly",
            }
        )
    return {
        "data": traces,
        "layout": {"xaxis": _axis(x, log_x), "yaxis": _axis(y, log_y), "hovermode": "closest"},
    }


def of_panel(panel: Panel) -> Chart:
    """Make a chart of a panel of lines."""
    chart = lines(panel.lines, x=panel.x, y=panel.y, log_x=panel.log_x, log_y=panel.log_y)
    if panel.ticks:
        texts = [text.replace("\n", "<br>") for text in panel.ticks.values()]
        chart["layout"]["xaxis"] |= {"tickvals": [*panel.ticks], "ticktext": texts}
    if panel.rule is not None:
        ends = {"x0": panel.rule, "x1": panel.rule, "y0": 0, "y1": 1}
        line = {"type": "line", "yref": "paper", **ends, "line": {"color": "grey", "width": 1}}
        chart["layout"]["shapes"] = [line]
    return chart


def small_multiples(panel: Panel) -> dict[str, Any]:
    """Draw each line of a panel by itself, in SVG's coordinates from 0 to `WIDTH` and `HEIGHT`.

    Returns:
        The ``panel``; the paths that all small panels share, the range of all lines (``band``), the
        ``reference`` and the vertical ``rule``; whether a line leaves the panel (``is_cut``); and
        ``cells`` with label, last number, path and end of each line.
    """

    def place(points: Points) -> list[tuple[float, float]]:
        return [(round(WIDTH * u, 1), round(HEIGHT * (1 - v), 1)) for u, v in points]

    def path(points: Points) -> str:
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in place(points))

    cells = []
    for label, line in panel.lines.items():
        scaled = panel.scaled(line) or [(0.0, 1.0)]
        cells.append((label, four_digits(line[-1][1]), path(scaled), place(scaled)[-1]))
    reference = panel.lines.get(panel.reference)
    dashed = path(panel.scaled(reference)) if reference else ""
    band = path(panel.band())
    *_, low, high = panel.ends
    rule = path(panel.scaled([(panel.rule, y) for y in (low, high)])) if panel.rule else ""
    shared = {"band": band, "reference": dashed, "rule": rule}
    is_cut = any(y > high for line in panel.lines.values() for _, y in line)
    return {"panel": panel, **shared, "is_cut": is_cut, "cells": cells}


def heat(
    values: Sequence[Sequence[float]], *, x: str, y: str, signed: bool = True, first: int = 0
) -> Chart:
    """Make a heat map, with numbers encoded as characters relative to the end of the scale.

    The scale ends at the largest absolute number, or at the 99th percentile if the largest is far
    beyond, as for the first token; numbers beyond get the last colour. Maps with more than 100
    columns are thinned to every second row and column (or every third, ...); results keep all.

    first: label of the first row and column.
    """
    step = 1 + (max(map(len, values), default=0) - 1) // _MOST_CELLS
    values = [row[::step] for row in values[::step]]
    sizes = np.abs(list(chain.from_iterable(values)))
    largest = float(sizes.max(initial=0.0))
    usual = float(np.percentile(sizes, _PERCENTILE, method="higher")) if largest else 0.0
    most = usual if 0 < _FAR * usual < largest else largest or 1.0

    def shade(value: float) -> str:
        return chr(_ZERO + round(_SHADES * min(max(value / most, -1.0), 1.0)))

    return {
        "data": [
            {
                "type": "heatmap",
                "shades": ["".join(map(shade, row)).translate(_SHORTER) for row in values],
                "zero": _ZERO,
                "unit": _short(most / _SHADES),
                "signed": signed,
                "beyond": int((sizes > most).sum()),
                "first": first,
                "step": step,
            }
        ],
        "layout": {"xaxis": _axis(x), "yaxis": {**_axis(y), "autorange": "reversed"}},
    }


def dots(
    series: Mapping[str, Sequence[tuple[str, float, float | None]]], rows: Sequence[str], *, x: str
) -> Chart:
    """Make a chart of dots with deviations by their name, on lines of the rows from the top."""
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "y": [label for label, _, _ in found],
            "x": [_short(value) for _, value, _ in found],
            "error_x": {"type": "data", "array": [_short(d or 0.0) for _, _, d in found]},
            "marker": {"size": 8},
        }
        for name, found in series.items()
    ]
    y = {"autorange": "reversed", "automargin": True, "type": "category"}
    order = {"categoryorder": "array", "categoryarray": [*rows]}
    return {"data": traces, "layout": {"xaxis": _axis(x), "yaxis": {**y, **order}}}


def _axis(title: str, log: bool = False) -> dict[str, Any]:
    text = "<br>".join(wrap(title, _TITLE_WIDTH))
    return {"title": {"text": text}, "automargin": True, **({"type": "log"} if log else {})}


def _positions(found: Sequence[float]) -> Chart:
    """Return a line's x values, as start and step if all steps are equal."""
    steps = {b - a for a, b in pairwise(found)}
    return {"x0": found[0], "dx": steps.pop()} if len(steps) == 1 else {"x": found}


def _short(value: float) -> float:
    """Round to four significant digits, as an integer if possible."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short
