"""A figure of a paper as files: PNG, SVG, a JSON of its numbers, and a page on what is seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fairseq_plugins.common.files import write_json, write_text
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.common.report_view import view_of_figure

DIGITS = 4  # that count
# Of a matrix, which a file has many numbers of: digits, and the share of the largest number below
# which a number is 0.
MATRIX_DIGITS, LEAST = 3, 1e-6
COLUMNS = 4
# Percentiles of a map's numbers at which its greys end.
PERCENTILES = (1.0, 99.0)
SCALES = (
    "Each panel has its own greys, from the 1st to the 99th percentile of its numbers: a few that "
    "are far from all others, like those of the token at the start, would leave the rest white. "
    "What is beyond is drawn as the ends are, where the scale has an arrow."
)

# By whether numbers are below a scale and above it.
_ARROWS = {
    (False, False): "neither",
    (True, False): "min",
    (False, True): "max",
    (True, True): "both",
}


@dataclass(frozen=True)
class Panel:
    """A matrix to look at.

    Attributes:
        title: above it.
        matrix: (N, M).
        first: what the first row and column are called, as -64 of relative vectors.
        dark: whether large numbers are dark, as in the paper; else blue and red around 0.
        marked: (N, M) bool, in blue.
    """

    title: str
    matrix: Tensor
    first: int = 0
    dark: bool = True
    marked: Tensor | None = None


@dataclass(frozen=True)
class Made:
    """A figure before it is written.

    Attributes:
        picture: matplotlib's.
        numbers: for the JSON.
        seen: paragraphs or tables on what is seen.
        agrees: sentences on whether the numbers agree with what the paper saw, or "".
    """

    picture: Any
    numbers: Mapping[str, Any]
    seen: Sequence[str] = field(default_factory=tuple)
    agrees: str = ""


def write_figure(made: Made, stem: Path, *, title: str, paper: str, command: str) -> None:
    """Write ``stem``.png, .svg, .json and .md.

    Args:
        made: the figure.
        stem: path without a suffix.
        title: of the page.
        paper: what the paper saw.
        command: that makes it.
    """
    save_picture(made.picture, stem)
    write_json(stem.with_suffix(".json"), rounded(made.numbers), indent=None)
    parts = [
        f"# {title}",
        f"![{title}]({stem.name}.png)",
        *made.seen,
        *view_of_figure(stem),
        f"**The paper saw**: {paper}",
        *([f"**By the numbers here.** {made.agrees}"] if made.agrees else []),
        f"As [SVG]({stem.name}.svg); the numbers are in [{stem.name}.json]({stem.name}.json). "
        f"Made by `{command}`.",
    ]
    write_text(stem.with_suffix(".md"), "\n\n".join(parts) + "\n")


def rounded(value: Any) -> Any:
    """Numbers, in whatever they are, to `DIGITS` that count; what is not finite is None.

    A tensor of two or more dimensions is a matrix, and has fewer digits.
    """
    if isinstance(value, Tensor) and value.dim() > 1:
        finite = value[value.isfinite()].abs()
        least = LEAST * float(finite.max()) if len(finite) else 0.0
        return _rounded(value.masked_fill(value.abs() < least, 0.0).tolist(), MATRIX_DIGITS)
    return _rounded(value, DIGITS)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, Tensor):
        return _rounded(value.tolist(), digits)
    if isinstance(value, Mapping):
        return {str(name): rounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner, digits) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def grey_limits(numbers: Any) -> tuple[float, float]:
    """Return the bounds of a map's greys: `PERCENTILES`, or its extremes where these are equal.

    numbers: finite ones, at least one.
    """
    low, high = (float(value) for value in np.percentile(numbers, PERCENTILES))
    return (low, high) if low < high else (float(numbers.min()), float(numbers.max()))


def draw_panels(panels: Sequence[Panel], across: int = COLUMNS) -> Any:
    """Heat maps, each with a scale of its own, which `SCALES` says of dark ones."""
    from matplotlib.colors import ListedColormap  # an extra, which the numbers do without
    from matplotlib.figure import Figure

    across = min(across, len(panels))
    down = math.ceil(len(panels) / across)
    picture = Figure(figsize=(4.2 * across, 3.9 * down), layout="constrained")
    places = picture.subplots(down, across, squeeze=False).ravel()
    for place in places[len(panels) :]:
        place.set_axis_off()
    for place, panel in zip(places, panels, strict=False):
        matrix = panel.matrix.numpy()
        finite = matrix[np.isfinite(matrix)]
        reach = float(np.abs(finite).max()) or 1.0
        least, most = grey_limits(finite) if panel.dark else (-reach, reach)
        down_to, right_to = (panel.first + size - 0.5 for size in matrix.shape)
        extent = (panel.first - 0.5, right_to, down_to, panel.first - 0.5)
        image = place.imshow(
            np.where(np.isfinite(matrix), matrix, np.nan),
            cmap="Greys" if panel.dark else "RdBu_r",
            vmin=least,
            vmax=most,
            extent=extent,
            interpolation="none",
        )
        if panel.marked is not None:
            shown = np.where(panel.marked.numpy(), 1.0, np.nan)
            blue = ListedColormap(["tab:blue"])
            place.imshow(shown, cmap=blue, extent=extent, interpolation="none")
        place.set_title(panel.title, fontsize=10)
        place.tick_params(labelsize=9)
        beyond = bool(finite.min() < least), bool(finite.max() > most)
        bar = picture.colorbar(image, ax=place, shrink=0.8, extend=_ARROWS[beyond])
        bar.ax.tick_params(labelsize=8)
    return picture


def draw_lines(
    panels: Sequence[tuple[str, str, str, Mapping[str, tuple[Sequence[float], Sequence[float]]]]],
    *,
    rule: float | None = None,
) -> Any:
    """Panels of lines, each with its names beside it; one with those of the next leaves them to it.

    Args:
        panels: title, label of x, label of y, and by name the points of a line.
        rule: where a horizontal line is drawn.
    """
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6.4 * len(panels) + 2, 4.4), layout="constrained")
    places = picture.subplots(1, len(panels), squeeze=False)[0]
    names = [list(found) for *_, found in panels]
    for place, (title, x, y, found), after in zip(places, panels, [*names[1:], []], strict=True):
        for number, (name, (xs, ys)) in enumerate(found.items()):
            style = ("-", "--", ":", "-.")[number // 10 % 4]  # matplotlib has ten colours
            place.plot(xs, ys, style, label=name, linewidth=1.4)
        if rule is not None:
            place.axhline(rule, color="black", linewidth=0.8)
        place.set_title(title, fontsize=11)
        place.set_xlabel(x)
        place.set_ylabel(y)
        place.grid(alpha=0.3)
        if found and list(found) != after:
            place.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # hiding no line
    return picture
