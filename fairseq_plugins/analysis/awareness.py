"""Awareness of a sequence's start and end in position vectors (dual positional encoding's paper).

Definitions 3.1 and 3.2, Properties 3.1 and 3.2, Corollaries 3.5 and 3.6 (Appendices A to E).

In all functions `rows` maps a length l to the vectors (l, C) of positions 0 to l - 1, float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

# Relative tolerance for equal vectors. Rows are computed in float32, and slow waves of wide models
# change by less than 1e-5 between lengths.
SAME = 1e-6
_SINGULAR = 1e-10  # relative size of singular values that count as 0

Rows = Mapping[int, Tensor]


def gaps(rows: Rows, *, from_end: bool = False) -> Tensor:
    """Measure how features at one distance to the start, or the end, differ between lengths.

    Definitions 3.1 and 3.2.

    Returns:
        (C,), the largest difference over pairs of lengths and their common positions.
    """
    found = []
    for first, second in combinations(sorted(rows), 2):
        longer = rows[second][second - first :] if from_end else rows[second][:first]
        found.append((rows[first] - longer).abs().amax(0))
    return torch.stack(found).amax(0)


def min_distance(rows: Rows, features: Tensor) -> float:
    """Compute the smallest distance (maximum norm) between two positions of one sequence.

    0 for a constant slice, and without features.

    Args:
        rows: by length.
        features: (C,) bool, the slice.
    """
    if not features.any():
        return 0.0
    found = []
    for vectors in rows.values():
        if len(vectors) > 1:
            part = vectors[:, features]
            distances = (part.unsqueeze(0) - part.unsqueeze(1)).abs().amax(-1)
            found.append(float(distances.fill_diagonal_(torch.inf).min()))
    return min(found, default=0.0)


def function_gap(rows: Rows, features: Tensor, *, from_end: bool = False) -> float | None:
    """Measure how far P_b is from being a function of P_a at all lengths (Properties 3.1, 3.2).

    Two lengths whose slices agree at position a must agree at every b.

    Args:
        rows: by length.
        features: (C,) bool, the slice.
        from_end: count positions from the end (Property 3.2), not from the start (3.1).

    Returns:
        The largest difference at b of lengths that agree at a; None where no two ever agree.
    """
    if not features.any():
        return None
    limit, worst = SAME * _largest(rows), None
    for first, second in combinations(sorted(rows), 2):
        one, other = rows[first][:, features], rows[second][:, features]
        one, other = (one.flip(0), other.flip(0)) if from_end else (one, other)
        differences = (one - other[:first]).abs().amax(-1)
        if (differences <= limit).any():
            worst = max(worst or 0.0, float(differences.max()))
    return worst


def sum_formula_error(rows: Rows) -> float:
    """Measure how far P_{x + y} is from a function of products of P_x, P_y (Eq. 15; Appendix E).

    SPE has one, of sines and cosines; ASPE has one for each length, but none for all (Eq. 23).
    Features are taken in pairs, of neighbours or of those half the width apart, whichever fits.

    Args:
        rows: by length, of an even number of features.

    Returns:
        The root mean square residual of the best coefficients for all x, y and lengths, as a share
        of the targets' root mean square.
    """
    grids = [
        (vectors, *torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij"))
        for n, vectors in rows.items()
    ]
    inside = [(v, x[x + y < len(v)], y[x + y < len(v)]) for v, x, y in grids]
    triples = [
        torch.cat([vectors[at] for vectors, at in taken])
        for taken in zip(*([(v, x), (v, y), (v, x + y)] for v, x, y in inside), strict=True)
    ]
    width = triples[0].size(1)
    neighbours = torch.arange(width).view(-1, 2)
    halves = torch.arange(width).view(2, -1).T
    return min(_products_miss(triples, pairs) for pairs in (neighbours, halves))


def _products_miss(triples: list[Tensor], pairs: Tensor) -> float:
    """Return the residual of P_{x+y} fitted by P_x and P_y, each (N, C), for pairs (C/2, 2)."""
    first, second, targets = (rows[:, pairs].transpose(0, 1) for rows in triples)  # (C/2, N, 2)
    products = (first.unsqueeze(-1) * second.unsqueeze(-2)).flatten(-2)  # (C/2, N, 4)
    size = targets.square().mean().sqrt()
    if size == 0:
        return 0.0
    solution = torch.linalg.lstsq(products, targets, driver="gelsd", rcond=_SINGULAR).solution
    return float((products @ solution - targets).square().mean().sqrt() / size)


def centre_gap(scores: Tensor) -> float:
    """Measure how far a position's contribution differs between queries (Corollary 3.5).

    A relative encoding's g(P_ij) differs for every query i, so that it gives neither the distance
    of j to the start nor to the end.

    Args:
        scores: (T, T), the positions' contribution to the score of query i and key j.

    Returns:
        The largest difference over queries of one key's score, as a share of the largest score.
    """
    spread = scores.amax(0) - scores.amin(0)
    largest = float(scores.abs().max())
    return float(spread.max()) / largest if largest else 0.0


@dataclass(frozen=True)
class Side:
    """Measures of position vectors counted from one end of the sequence."""

    features: Tensor  # (C,) bool, those equal at one distance to this end for all lengths
    apart: float  # `min_distance` of the features
    function_gap: float | None  # of the features (Property 3.1 or 3.2)
    is_aware: bool  # whether the features distinguish all positions


@dataclass(frozen=True)
class Awareness:
    """Measures of the position vectors of an encoding."""

    forward: Side  # from the start
    backward: Side  # from the end
    sum_error: float  # `sum_formula_error` (Appendix E)
    size: float  # the largest absolute value, to which `SAME` is relative


def measure_awareness(rows: Rows) -> Awareness:
    """Compute all measures.

    Raises:
        ValueError: fewer than two lengths, or a length below 2.
    """
    if len(rows) < 2 or min(rows) < 2:
        raise ValueError(
            f"`rows` must be of two lengths of at least 2, but are of {sorted(rows)} instead."
        )
    limit = SAME * _largest(rows)

    def measure(from_end: bool) -> Side:
        features = gaps(rows, from_end=from_end) <= limit
        apart = min_distance(rows, features)
        return Side(features, apart, function_gap(rows, features, from_end=from_end), apart > limit)

    return Awareness(measure(False), measure(True), sum_formula_error(rows), _largest(rows))


def slices(features: Tensor) -> list[tuple[int, int]]:
    """Find runs of selected features (C,), as (first, end)."""
    edges = nn.functional.pad(features.int(), (1, 1)).diff().nonzero().flatten().tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def as_words(features: Tensor) -> str:
    """Format selected features as Python slices: "0:16", or "none"."""
    return ", ".join(f"{first}:{end}" for first, end in slices(features)) or "none"


def _largest(rows: Rows) -> float:
    return max(float(vectors.abs().max()) for vectors in rows.values())
