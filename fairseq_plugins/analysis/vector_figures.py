"""Figures of position vectors in "On Position Embeddings in BERT": 1, 3, 4, 6 and 8."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis import LENGTH
from fairseq_plugins.analysis.figure_files import (
    SCALES,
    Panel,
    RenderedFigure,
    draw_lines,
    draw_panels,
)
from fairseq_plugins.analysis.figure_inputs import (
    BERT_WIDTH,
    FigureInput,
    FigureSizes,
    common_length,
)
from fairseq_plugins.analysis.position_vectors import (
    ALIKE,
    alike_from,
    by_offset,
    closeness,
    cosines,
    dot_products,
    first_rise,
    waves,
)
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.encodings.frequencies import geometric

# Ends of the panels' titles.
ABSOLUTE, RELATIVE = ", absolute", ", relative"


def dots(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figures 1 and 8: dot products between absolute, and between relative vectors."""
    numbers: dict[str, Any] = {}
    lines = []
    length = common_length(inputs, sizes)
    for is_relative in (False, True):
        for item in inputs:
            rows = item.relative() if is_relative else item.absolute(length)
            if rows is None:
                continue
            matrix = dot_products(rows)
            title = f"{item.label}{RELATIVE if is_relative else ABSOLUTE}"
            numbers[title] = {
                "dot_products": matrix,
                "by_offset": by_offset(matrix),
                "vectors": item.relative_kind() if is_relative else item.absolute_kind(),
            }
            means = by_offset(matrix)[len(rows) - 1 :]
            lines.append([title, str(len(rows)), _rise(means)])
    sizes.require(lines, "position vectors")
    header = ["", "vectors", "mean over pairs m apart first rises at m"]
    return RenderedFigure(
        draw_panels(dot_panels(numbers)), numbers, [SCALES, markdown_table(header, lines, left=1)]
    )


def dot_panels(numbers: Mapping[str, Any]) -> list[Panel]:
    """Make the panels of Figures 1 and 8."""
    panels = []
    for title, one in numbers.items():
        matrix, is_relative = one["dot_products"], title.endswith(RELATIVE)
        first, axis = (-(len(matrix) // 2), "offset") if is_relative else (0, "position")
        panels.append(Panel(title, matrix, first, axes=(axis, axis), unit="dot product"))
    return panels


def relative_cosines(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figure 6 (Appendix D): cosines between relative vectors, above 0.95 in black."""
    numbers, lines = {}, []
    found = [(s, rows) for s in inputs if (rows := s.relative()) is not None]
    for item, rows in sizes.require(found, "relative vectors"):
        matrix, reach = cosines(rows), len(rows) // 2
        near = alike_from(rows)
        neighbours = matrix.diagonal(1)
        numbers[item.label] = {
            "cosines": matrix,
            "neighbours": neighbours,
            "alike_from": near,
            "threshold": ALIKE,
            "relative": item.relative_kind(),
        }
        ends = f"{neighbours.min():.3f} to {neighbours.max():.3f}"
        lines.append([item.label, str(reach), ends, "never" if near is None else str(near)])
    header = ["", "largest offset", "cosine of neighbours", f"all above {ALIKE} from offset"]
    marks = f"Cosines above {ALIKE} are black."
    table = markdown_table(header, lines, left=1)
    return RenderedFigure(draw_panels(cosine_panels(numbers)), numbers, [marks, table])


def cosine_panels(numbers: Mapping[str, Any]) -> list[Panel]:
    """Make the panels of Figure 6."""
    panels = []
    for label, one in numbers.items():
        matrix, axes = one["cosines"], ("offset", "offset")
        marked = matrix > one["threshold"]
        panels.append(Panel(label, matrix, -(len(matrix) // 2), False, marked, axes, "cosine"))
    return panels


def fixed_waves(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figure 3: cos(w_i m) of some frequencies, and psi(m) of all BERT's."""
    offsets = torch.arange(sizes.length or LENGTH)
    frequencies = geometric(BERT_WIDTH // 2, BERT_WIDTH)
    picked = torch.tensor([0, 64, 128, 192, 383])
    some, psi = waves(frequencies[picked], offsets), closeness(frequencies, offsets)
    rise = first_rise(psi)
    xs = offsets.tolist()
    curves = {
        f"w = {float(frequencies[i]):.2g}": (xs, wave.tolist())
        for i, wave in zip(picked.tolist(), some, strict=True)
    }
    picture = draw_lines(
        [
            ("(a) of some frequencies", "offset m", "cos(w m)", curves),
            ("(b) of all", "offset m", "psi(m)", {f"D = {BERT_WIDTH}": (xs, psi.tolist())}),
        ]
    )
    bottom = int(psi.argmin())
    summary = (
        f"With the {BERT_WIDTH // 2} fixed frequencies of D = {BERT_WIDTH}, psi falls from "
        f"{psi[0]:.0f} at m = 0 and first rises at m = {rise}, so that it is monotone for 0 to "
        f"{(rise or len(xs)) - 1}. Within {len(xs)} offsets its lowest value is {psi[bottom]:.1f}, "
        f"at m = {bottom}: after the first rise, psi still falls mostly, but not "
        "everywhere."
    )
    numbers = {"offsets": xs, "psi": psi, "first_rise": rise, "frequencies": frequencies[picked]}
    waves_by_name = {name: wave for name, (_, wave) in curves.items()}
    return RenderedFigure(picture, {**numbers, "waves": waves_by_name}, [summary])


def learned_waves(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figure 4: learned and fixed frequencies, and psi of each."""
    with_waves = [(s, w) for s in inputs if (w := s.frequencies()) is not None]
    found = {s.label: w for s, w in sizes.require(with_waves, "absolute sinusoids")}
    widths = {label: 2 * len(w) for label, w in found.items()}
    width = next(iter(widths.values()))
    if len({*widths.values()}) > 1:
        sizes_found = ", ".join(f"{label} has {size}" for label, size in widths.items())
        raise OptionError(f"figure 4 needs models of one number of features, but {sizes_found}")
    every = {"default": geometric(width // 2, width), **found}
    offsets = torch.arange(sizes.length or LENGTH)
    psi = {name: closeness(w, offsets) / len(w) for name, w in every.items()}
    ranks = list(range(len(every["default"])))
    picture = draw_lines(
        [
            ("(a) frequencies", "i", "w_i", {n: (ranks, w.tolist()) for n, w in every.items()}),
            (
                "(b) dot products of positions",
                "offset m",
                "psi(m) / psi(0)",
                {n: (offsets.tolist(), values.tolist()) for n, values in psi.items()},
            ),
        ]
    )
    lines = [
        [name, f"{(w < every['default']).double().mean():.0%}", _rise(psi[name])]
        for name, w in every.items()
    ]
    header = ["", "frequencies below the fixed ones", "psi first rises at"]
    numbers = {"frequencies": every, "offsets": offsets, "psi": psi}
    return RenderedFigure(picture, numbers, [markdown_table(header, lines, left=1)])


def _rise(values: Tensor) -> str:
    found = first_rise(values)
    return f"never within {len(values) - 1}" if found is None else str(found)
