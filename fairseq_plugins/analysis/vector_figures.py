"""Figures of position vectors in "On Position Embeddings in BERT": 1, 6 and 8."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fairseq_plugins.analysis.figure_files import SCALES, Panel
from fairseq_plugins.analysis.figure_inputs import (
    FIXED_SINUSOIDS,
    LEARNED,
    LEARNED_SINUSOIDS,
    Figure,
    FigureInput,
    FigureSizes,
    Numbers,
    common_length,
)
from fairseq_plugins.analysis.position_vectors import (
    ALIKE,
    NEAR,
    NEAR_MINUS_FAR,
    alike_from,
    by_offset,
    clearness,
    cosines,
    describe_rise,
    dot_products,
    near_minus_far,
    offset_share,
    side_gap,
)
from fairseq_plugins.analysis.sentences import sentences, signs, summarise
from fairseq_plugins.common.tables import markdown_table

ABSOLUTE, RELATIVE = ", absolute", ", relative"  # ends of the panels' titles
FAR = 20  # relative vectors beyond this offset are far, as in the paper's Figure 1
ALIKE_BY = 25  # the paper: 20 to 25


def dots(inputs: Sequence[FigureInput], sizes: FigureSizes) -> tuple[Numbers, list[str]]:
    """Measure dot products between absolute, and between relative vectors (Figures 1 and 8)."""
    numbers, lines = {}, []
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
            lines.append([title, str(len(rows)), describe_rise(means)])
    sizes.require(lines, "position vectors")
    header = ["", "vectors", "offset at which the mean first rises"]
    return numbers, [SCALES, markdown_table(header, lines, left=1)]


def dot_maps(numbers: Numbers) -> list[Panel]:
    """Make the maps of Figures 1 and 8."""
    panels = []
    for title, one in numbers.items():
        matrix, is_relative = one["dot_products"], title.endswith(RELATIVE)
        first, axis = (-(len(matrix) // 2), "offset") if is_relative else (0, "position")
        panels.append(Panel(title, matrix, first, axes=(axis, axis), unit="dot product"))
    return panels


def check_vectors(numbers: Numbers) -> str:
    """Check Figure 1: neighbours are closer, and far relative vectors are alike."""
    matrices = {name: one["dot_products"] for name, one in numbers.items()}
    kinds = {name: one["vectors"] for name, one in numbers.items()}
    absolute = {name: m for name, m in matrices.items() if not name.endswith(RELATIVE)}
    learned = {
        name: matrix
        for name, matrix in matrices.items()
        if name not in absolute and kinds[name] == LEARNED
    }
    return sentences(
        summarise(
            f"Neighbouring absolute vectors are closer than far ones ({NEAR_MINUS_FAR})",
            signs({name: near_minus_far(matrix) for name, matrix in absolute.items()}),
        ),
        _check_clearness({name: clearness(matrix) for name, matrix in absolute.items()}, kinds),
        *_check_relative_sides(learned),
    )


def _check_clearness(found: Mapping[str, float], kinds: Mapping[str, str]) -> str:
    """Check that learnable sinusoids separate near from far more clearly than learned tables."""
    learnable, learned, fixed = (
        {name: value for name, value in found.items() if kinds[name] == kind}
        for kind in (LEARNED_SINUSOIDS, LEARNED, FIXED_SINUSOIDS)
    )
    if not learned:
        return ""
    most = max(learned.values())
    note = ""
    if fixed:
        note = f"; fixed sinusoids, not in the paper's figure: {max(fixed.values()):.3g}"
    return summarise(
        "More clearly under learnable sinusoids than learned vectors (in standard deviations over "
        f"all pairs; learned vectors at most {most:.3g}{note})",
        {name: (value > most, f"{value:.3g}") for name, value in learnable.items()},
    )


def _check_relative_sides(matrices: Mapping[str, Tensor]) -> tuple[str, str]:
    """Compare near and far relative vectors by cosine, from dot products (2k + 1, 2k + 1)."""
    apart, alike = {}, {}
    for name, matrix in matrices.items():
        if len(matrix) // 2 <= FAR:
            continue  # a table that ends before
        sizes = matrix.diagonal().sqrt()
        offset = (torch.arange(len(matrix)) - len(matrix) // 2).abs()
        found, small, far = matrix / sizes / sizes[:, None], offset <= NEAR, offset > FAR
        among = found[far][:, far]
        within = float(among[~torch.eye(len(among), dtype=torch.bool)].mean())
        between = float(found[small][:, far].mean())
        apart[name] = (between < within, f"{between:.3g} against {within:.3g}")
        alike[name] = (within > ALIKE, f"{within:.3g}")
    return (
        summarise(
            f"Learned relative vectors of offsets up to {NEAR} differ more from those beyond {FAR} "
            "than these from each other (mean cosines)",
            apart,
        ),
        summarise(
            f"Learned relative vectors beyond {FAR} are alike (mean cosine above {ALIKE})", alike
        ),
    )


def check_training(numbers: Numbers) -> str:
    """Check Figure 8: invariance and monotonicity emerge from the first panel to the last."""
    relative = [name for name in numbers if name.endswith(RELATIVE)]
    kinds = [name for name in numbers if name not in relative], relative  # which do not compare
    return sentences(*(_check_ends(numbers, names) for names in kinds if len(names) > 1))


def _check_ends(numbers: Numbers, names: Sequence[str]) -> str:
    """Compare the first and the last panel of one kind of vectors."""
    ends = [numbers[name]["dot_products"] for name in (names[0], names[-1])]
    parts = []
    for quantity, measure in (
        ("the share of the variance between positions that the offset explains", offset_share),
        (NEAR_MINUS_FAR, near_minus_far),
    ):
        first, last = (measure(matrix) for matrix in ends)
        word = "rises" if last > first else "does not rise"
        parts.append(
            f"{quantity} {word}, from {first:.3g} ({names[0]}) to {last:.3g} ({names[-1]})"
        )
    return f"Translation invariance: {parts[0]}; local monotonicity: {parts[1]}."


def relative_cosines(
    inputs: Sequence[FigureInput], sizes: FigureSizes
) -> tuple[Numbers, list[str]]:
    """Measure cosines between relative vectors (Figure 6, Appendix D)."""
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
    return numbers, [f"Cosines above {ALIKE} are black.", markdown_table(header, lines, left=1)]


def cosine_maps(numbers: Numbers) -> list[Panel]:
    """Make the maps of Figure 6, with cosines above the threshold in black."""
    panels = []
    for label, one in numbers.items():
        matrix, axes = one["cosines"], ("offset", "offset")
        marked = matrix > one["threshold"]
        panels.append(Panel(label, matrix, -(len(matrix) // 2), False, marked, axes, "cosine"))
    return panels


def check_relative(numbers: Numbers) -> str:
    """Check Figure 6: far vectors are alike, those of one side more than those of two."""
    learned = {name: one for name, one in numbers.items() if one["relative"] == LEARNED}
    reach = {name: len(one["cosines"]) // 2 for name, one in learned.items()}
    far = {
        name: (near is not None and near <= ALIKE_BY, "never" if near is None else f"from {near}")
        for name, near in ((name, one["alike_from"]) for name, one in learned.items())
        if reach[name] > ALIKE_BY  # a shorter table ends before
    }
    gaps = {name: side_gap(one["cosines"]) for name, one in learned.items() if reach[name] > 1}
    sides = "Learned vectors of one side are more alike than those of two (mean cosines)"
    return sentences(
        summarise(f"Learned vectors are alike from offset {ALIKE_BY} on, or earlier", far),
        summarise(sides, signs(gaps)),
    )


FIGURES = {
    1: Figure(
        "Dot products between position vectors",
        "neighbouring absolute vectors are closer than far ones, learnable sinusoids more clearly; "
        "of learned relative vectors those of small offsets are unlike all others, and those "
        "beyond 20 are alike.",
        dots,
        dot_maps,
        check=check_vectors,
        untrained=("sinusoidal", "sinusoidal_rpe"),
    ),
    6: Figure(
        "Cosine similarity of relative vectors",
        "of learned relative vectors, those beyond offsets of 20 to 25 are not significantly "
        "different; vectors of one side are slightly more alike than those of two.",
        relative_cosines,
        cosine_maps,
        check=check_relative,
        untrained=("sinusoidal_rpe",),
    ),
    8: Figure(
        "Dot products between position vectors while training",
        "no pattern at first; with more steps translation invariance and local monotonicity "
        "emerge.",
        dots,
        dot_maps,
        check=check_training,
    ),
}
