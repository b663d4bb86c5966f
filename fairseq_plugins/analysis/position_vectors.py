"""Similarities of position vectors, and measures of a matrix (T, T) over pairs of positions.

"On Position Embeddings in BERT", Sections 3.1 and 4.1, Appendices A, D and G.
"""

import torch
from torch import Tensor

NEAR = 5  # offsets that count as neighbours, those of the BERT paper's Figure 1
# What `near_minus_far` is, in sentences.
NEAR_MINUS_FAR = (
    f"mean over pairs 1 to {NEAR} apart minus that over pairs half the length apart and more"
)
ALIKE = 0.95  # cosine above which Appendix D calls two vectors not significantly different


def dot_products(vectors: Tensor) -> Tensor:
    """Compute <P_x, P_y> of all pairs (Figures 1 and 8): (N, C) -> (N, N)."""
    return vectors @ vectors.mT


def cosines(vectors: Tensor) -> Tensor:
    """Compute cosines of all pairs (Figure 6): (N, C) -> (N, N); 0 with a vector of zeros."""
    return dot_products(torch.nn.functional.normalize(vectors, dim=-1))


def alike_from(vectors: Tensor) -> int | None:
    """Find the offset from which the relative vectors of a side are all alike (Appendix D).

    Args:
        vectors: (2k + 1, D), for the offsets -k..k.

    Returns:
        The smallest m such that the vectors of m..k are pairwise `ALIKE`, and those of -k..-m;
        None where not even the last two of a side are.
    """
    found, reach = cosines(vectors), len(vectors) // 2
    smallest = None
    for offset in range(reach - 1, -1, -1):
        sides = slice(reach + offset, None), slice(0, reach - offset + 1)
        if not all((found[side, side] > ALIKE).all() for side in sides):
            break
        smallest = offset
    return smallest


def waves(frequencies: Tensor, offsets: Tensor) -> Tensor:
    """Compute cos(w_i m), Figure 3 (a): frequencies (n,), offsets (M,) -> (n, M) float64."""
    return (frequencies.double().unsqueeze(1) * offsets.double()).cos()


def closeness(frequencies: Tensor, offsets: Tensor) -> Tensor:
    """Compute psi(m) = sum_i cos(w_i m), the dot product at offset m (Eq. 6): (M,) float64."""
    return waves(frequencies, offsets).sum(0)


def first_rise(values: Tensor) -> int | None:
    """Return the first index whose value (M,) exceeds the one before; None where there is none."""
    rises = torch.nonzero(values.diff() > 0)
    return int(rises[0]) + 1 if len(rises) else None


def describe_rise(values: Tensor) -> str:
    """Format `first_rise` for a cell of a table."""
    found = first_rise(values)
    return f"never within {len(values) - 1}" if found is None else str(found)


def by_offset(matrix: Tensor) -> Tensor:
    """Average each diagonal: (..., T, T) -> (..., 2T - 1), for the offsets 1 - T..T - 1."""
    length = matrix.size(-1)
    means = [matrix.diagonal(k, -2, -1).mean(-1) for k in range(1 - length, length)]
    return torch.stack(means, -1)


def near_minus_far(matrix: Tensor) -> float:
    """Compute the mean over pairs 1 to 5 apart minus that over pairs half the length and more."""
    length = len(matrix)
    positions = torch.arange(length)
    distance = (positions[:, None] - positions).abs()
    near = matrix[(distance > 0) & (distance <= NEAR)].mean()
    return float(near - matrix[distance >= length // 2].mean())


def clearness(matrix: Tensor) -> float:
    """Compute `near_minus_far` in standard deviations over all pairs of two positions.

    0 where all pairs are equal.
    """
    pairs = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
    deviation = float(pairs.std(correction=0))
    return near_minus_far(matrix) / deviation if deviation else 0.0


def offset_share(matrix: Tensor) -> float:
    """Compute the share of the off-diagonal variance that the offset explains, 0..1.

    1 is translation invariance; 0 for a constant matrix.
    """
    length = len(matrix)
    diagonals = [matrix.diagonal(offset) for offset in range(1 - length, length) if offset]
    means = torch.cat([diagonal.mean().expand_as(diagonal) for diagonal in diagonals])
    total = torch.cat(diagonals).var(correction=0)
    return float(means.var(correction=0) / total) if total > 0 else 0.0


def side_gap(cosines: Tensor) -> float:
    """Compute the mean cosine within a side of relative vectors minus that between the sides.

    cosines: (2k + 1, 2k + 1), of the offsets -k..k.
    """
    reach = len(cosines) // 2
    before, after = slice(0, reach), slice(reach + 1, None)
    first, second = torch.triu_indices(reach, reach, 1)
    within = torch.cat([cosines[side, side][first, second] for side in (before, after)])
    return float(within.mean() - cosines[before, after].mean())


def asymmetry(weights: Tensor) -> float:
    """Compute the difference between the directions of pairs, as a share of their weight.

    0 where both directions of each pair weigh the same, 1 where only one has any weight.
    """
    between = float(weights.sum() - weights.trace())
    return float((weights - weights.mT).abs().triu(1).sum()) / between if between else 0.0
