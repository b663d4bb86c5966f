"""Files of a paper's figure: PNG, SVG, JSON of its numbers, and a Markdown page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, from_numpy

from fairseq_plugins.common import matrices
from fairseq_plugins.common.files import require_object, with_ending, write_json
from fairseq_plugins.common.pages import Page, bullets, figure_site_link, provenance_section
from fairseq_plugins.common.pictures import save_picture

DIGITS = 4  # significant digits of numbers
# Matrices have fewer digits, and entries below this share of the largest become 0; large matrices
# are packed.
MATRIX_DIGITS, LEAST = 3, 1e-6
COLUMNS = 4
FEW = 16  # points of a line that are marked
TITLE = 36  # characters of a map's title in its full size
# Percentiles of a map's numbers that bound its grey scale.
PERCENTILES = (1.0, 99.0)
SCALES = (
    "Each panel has its own grey scale, from the 1st to the 99th percentile of its numbers, so "
    "that outliers such as the first token's do not hide the rest. Where the scale has an arrow, "
    "numbers beyond it are drawn like its ends."
)


Lines = Sequence[tuple[str, str, str, Mapping[str, tuple[Sequence[float], Sequence[float]]]]]
"""Panels of lines: title, x label, y label, and the points of each line by name."""


@dataclass(frozen=True)
class Panel:
    """A matrix to draw as a heat map."""

    title: str
    matrix: Tensor  # (N, M)
    first: int = 0  # label of the first row and column, as -64 for relative vectors
    dark: bool = True  # whether large numbers are dark, as in the paper; else blue and red around 0
    marked: Tensor | None = None  # (N, M) bool, entries drawn in black
    axes: tuple[str, str] = ("", "")  # labels of columns and rows
    unit: str = ""  # label of the scale
    limits: tuple[float, float] | None = None  # ends of the scale; None for those of the matrix


@dataclass(frozen=True)
class RenderedFigure:
    """A drawn figure with its numbers and texts."""

    picture: Any  # matplotlib's figure
    numbers: Mapping[str, Any]  # content of the JSON
    paragraphs: Sequence[str] = field(default_factory=tuple)  # and tables of the page
    agreement: str = ""  # sentences on whether the numbers agree with the paper's observation
    models: Sequence[str] = ()  # descriptions of the models whose figure it is


def write_figure(
    figure: RenderedFigure, stem: Path, *, title: str, caption: str, command: str
) -> None:
    """Write ``stem``.png, .svg, .json and .md.

    Args:
        figure: the figure.
        stem: path without a suffix.
        title: title of the page.
        caption: the measurement, or the paper's observation; one line.
        command: the command that makes the figure.
    """
    save_picture(figure.picture, stem)
    write_numbers(with_ending(stem, ".json"), figure.numbers)
    result = [f"![{title}]({stem.name}.png)"]
    result += [f"**By the numbers here.** {figure.agreement}"] if figure.agreement else []
    files = (
        f"As [SVG]({stem.name}.svg); the numbers are in [{stem.name}.json]({stem.name}.json). "
        f"Made by `{command}`."
    )
    models = [bullets(figure.models)] if figure.models else []
    origin = provenance_section(*models, files, *figure_site_link(stem))
    page = Page(title, caption, [*result, *figure.paragraphs], [origin])
    page.write(with_ending(stem, ".md"))


def write_numbers(path: Path, numbers: Mapping[str, Any]) -> None:
    """Write a figure's numbers, rounded, with a note on how packed matrices are read."""
    content = rounded(numbers)
    note = {"matrices": matrices.NOTE} if _has_packed(content) else {}
    write_json(path, {**note, **content}, indent=None)


def read_numbers(path: Path) -> dict[str, Any]:
    """Read the numbers that `write_numbers` wrote, with matrices as tensors."""
    content = require_object(path)
    content.pop("matrices", None)
    return _with_tensors(content)


def _with_tensors(value: Any) -> Any:
    if matrices.is_packed(value):
        return from_numpy(matrices.unpack(value))
    if isinstance(value, Mapping):
        return {name: _with_tensors(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], list):
        return from_numpy(np.array(value, dtype=float))
    return value


def _has_packed(value: Any) -> bool:
    return matrices.is_packed(value) or (
        isinstance(value, Mapping) and any(map(_has_packed, value.values()))
    )


def rounded(value: Any) -> Any:
    """Round numbers in nested values to `DIGITS` significant digits; non-finite ones become None.

    Matrices (tensors of two or more dimensions) get `MATRIX_DIGITS`; large ones are packed.
    """
    if isinstance(value, Tensor) and value.dim() == 2 and value.numel() >= matrices.LEAST:
        return matrices.pack(value.numpy())
    if isinstance(value, Tensor) and value.dim() > 1:
        finite = value[value.isfinite()].abs()
        least = LEAST * float(finite.max()) if len(finite) else 0.0
        return round_digits(value.masked_fill(value.abs() < least, 0.0), MATRIX_DIGITS)
    if isinstance(value, Mapping):
        return {str(name): rounded(inner) for name, inner in value.items()}
    return round_digits(value, DIGITS)


def round_digits(value: Any, digits: int) -> Any:
    """Round the numbers of a tensor or of nested lists to significant digits."""
    if isinstance(value, Tensor):
        return round_digits(value.tolist(), digits)
    if isinstance(value, Mapping):
        return rounded(value)
    if isinstance(value, list | tuple):
        return [round_digits(inner, digits) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def grey_limits(numbers: Any) -> tuple[float, float]:
    """Return a grey scale's bounds: `PERCENTILES` of finite numbers, or else their extremes."""
    low, high = (float(value) for value in np.percentile(numbers, PERCENTILES))
    return (low, high) if low < high else (float(numbers.min()), float(numbers.max()))


def draw_panels(
    panels: Sequence[Panel], across: int = COLUMNS, size: tuple[float, float] = (4.2, 3.9)
) -> Any:
    """Draw heat maps, each with its own scale (`SCALES`) and a `size` in inches."""
    from matplotlib.colors import ListedColormap  # an optional dependency
    from matplotlib.figure import Figure

    across = min(across, len(panels))
    down = math.ceil(len(panels) / across)
    picture = Figure(figsize=(size[0] * across, size[1] * down), layout="constrained")
    axes = picture.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes, panels, strict=False):
        matrix = panel.matrix.numpy()
        finite = matrix[np.isfinite(matrix)]
        reach = float(np.abs(finite).max()) or 1.0
        own = grey_limits(finite) if panel.dark else (-reach, reach)
        least, most = panel.limits or own
        down_to, right_to = (panel.first + size - 0.5 for size in matrix.shape)
        extent = (panel.first - 0.5, right_to, down_to, panel.first - 0.5)
        image = axis.imshow(
            np.where(np.isfinite(matrix), matrix, np.nan),
            cmap="Greys" if panel.dark else "RdBu_r",
            vmin=least,
            vmax=most,
            extent=extent,
            aspect="equal" if matrix.shape[0] == matrix.shape[1] else "auto",
            interpolation="none",
        )
        if panel.marked is not None:
            shown = np.where(panel.marked.numpy(), 1.0, np.nan)
            black = ListedColormap(["black"])  # no colour of the scale
            axis.imshow(shown, cmap=black, extent=extent, interpolation="none")
        points = 10 * min(1, TITLE / max(len(panel.title), 1))  # beside its neighbours
        axis.set_title(panel.title, fontsize=points, parse_math=False)
        axis.set_xlabel(panel.axes[0], fontsize=9)
        axis.set_ylabel(panel.axes[1], fontsize=9)
        axis.tick_params(labelsize=9)
        axis.locator_params(integer=True)
        add_scale(picture, image, axis, panel.unit)
    return picture


def add_scale(picture: Any, image: Any, axes: Any, unit: str = "", size: int = 8) -> None:
    """Draw the scale of an image beside axes, with an arrow where numbers are beyond it."""
    numbers, (least, most) = image.get_array(), image.get_clim()
    is_below, is_above = bool(numbers.min() < least), bool(numbers.max() > most)
    arrow = "both" if is_below and is_above else "min" if is_below else "max"
    extend = arrow if is_below or is_above else "neither"
    bar = picture.colorbar(image, ax=axes, shrink=0.8, extend=extend)
    bar.ax.tick_params(labelsize=size)
    bar.set_label(unit, fontsize=size)


def draw_lines(panels: Lines, *, rule: float | None = None) -> Any:
    """Draw panels of lines, each with a legend at its right.

    Neighbouring panels with lines of the same names share the last one's legend.

    rule: y of a horizontal line.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    colours = style.library["tableau-colorblind10"]["axes.prop_cycle"]
    picture = Figure(figsize=(6.4 * len(panels) + 2, 4.4), layout="constrained")
    axes = picture.subplots(1, len(panels), squeeze=False)[0]
    names = [list(found) for *_, found in panels]
    for axis, (title, x, y, found), after in zip(axes, panels, [*names[1:], []], strict=True):
        axis.set_prop_cycle(colours)
        for number, (name, (xs, ys)) in enumerate(found.items()):
            # Neighbours differ in print too, and lines of one of the ten colours in their style.
            line = ("-", "--", ":", "-.")[(number + number // 10) % 4]
            marker = "o" if len(xs) <= FEW else ""
            axis.plot(xs, ys, line, marker=marker, markersize=3, label=name, linewidth=1.4)
        if rule is not None:
            axis.axhline(rule, color="black", linewidth=0.8)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        axis.grid(alpha=0.3)
        if found and list(found) != after:
            legend = axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
            for text in legend.get_texts():  # beside the lines, and names as they are
                text.set_parse_math(False)
    return picture
