"""Charts as Plotly takes them: data and axes; colours are the page's."""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

Points = Sequence[tuple[float, float]]
Chart = dict[str, Any]
_DASHES = ("solid", "dash", "dot", "dashdot")
_SHADES = 45  # steps of a map of colours on either side of zero, as many as eyes tell apart
_NEARLY_ALL, _FAR = 99, 1.5  # per cent of a map's numbers, and how much larger is far from them
_ZERO = ord("P")  # a map's row is text, a character for each shade: "#" is -45, "}" is 45


def lines(
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
    shown: Sequence[str] = (),
) -> Chart:
    """A line for each name; those that are not `shown`, where any are, wait in the legend."""
    traces = []
    for i, (name, points) in enumerate(series.items()):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= 40 else "lines",
                "name": name,
                **_places([_short(a) for a, _ in points]),
                "y": [_short(b) for _, b in points],
                "line": {"dash": _DASHES[i // 10 % len(_DASHES)], "width": 2},
                "visible": True if not shown or name in shown else "legendonly",
            }
        )
    return {
        "data": traces,
        "layout": {"xaxis": _axis(x, log_x), "yaxis": _axis(y, log_y), "hovermode": "closest"},
    }


def heat(
    values: Sequence[Sequence[float]], *, x: str, y: str, signed: bool = True, first: int = 0
) -> Chart:
    """A map of numbers, kept as characters for their shares of the one where the colours end.

    That is the largest, or, where it is far from the size which 99 of a hundred are within, that
    size: a few such, as those of a token at the start, would leave the rest in one colour. What is
    beyond is at the end.

    first: what the first row and column are called.
    """
    sizes = np.abs(list(chain.from_iterable(values)))
    largest = float(sizes.max(initial=0.0))
    usual = float(np.percentile(sizes, _NEARLY_ALL, method="higher")) if largest else 0.0
    most = usual if 0 < _FAR * usual < largest else largest or 1.0
    return {
        "data": [
            {
                "type": "heatmap",
                "shades": [
                    "".join(chr(_ZERO + round(_SHADES * _within(v / most))) for v in row)
                    for row in values
                ],
                "zero": _ZERO,
                "unit": _short(most / _SHADES),
                "signed": signed,
                "beyond": int((sizes > most).sum()),
                "first": first,
            }
        ],
        "layout": {"xaxis": _axis(x), "yaxis": {**_axis(y), "autorange": "reversed"}},
    }


def dots(series: Mapping[str, Sequence[tuple[str, float, float | None]]], *, x: str) -> Chart:
    """Draw for each series a dot with its deviation at each name, the first name on top."""
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
    return {
        "data": traces,
        "layout": {
            "xaxis": _axis(x),
            "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        },
    }


def _axis(title: str, log: bool = False) -> dict[str, Any]:
    return {"title": {"text": title}, "automargin": True, **({"type": "log"} if log else {})}


def _places(found: Sequence[float]) -> Chart:
    """Return the positions of a line's points; start and step where all steps are equal."""
    steps = {b - a for a, b in pairwise(found)}
    return {"x0": found[0], "dx": steps.pop()} if len(steps) == 1 else {"x": found}


def _within(share: float) -> float:
    return min(max(share, -1.0), 1.0)


def _short(value: float) -> float:
    """To four digits that count, and as short as JSON can have it."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short
