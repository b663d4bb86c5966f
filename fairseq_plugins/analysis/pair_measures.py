"""Measures of a matrix over pairs of positions: distance, offset, side and direction.

In all functions the matrix is (T, T), float64.
"""

import torch
from torch import Tensor

NEAR = 5  # offsets that count as neighbours, those of the BERT paper's Figure 1


def near_minus_far(matrix: Tensor) -> float:
    """Compute the mean over pairs 1 to 5 apart minus that over pairs half the length and more."""
    length = len(matrix)
    positions = torch.arange(length)
    distance = (positions[:, None] - positions).abs()
    near = matrix[(distance > 0) & (distance <= NEAR)].mean()
    return float(near - matrix[distance >= length // 2].mean())


def clearness(matrix: Tensor) -> float:
    """Compute `near_minus_far` in standard deviations over all pairs of two positions."""
    pairs = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
    return near_minus_far(matrix) / float(pairs.std(correction=0))


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
    own = torch.cat([cosines[side, side][first, second] for side in (before, after)])
    return float(own.mean() - cosines[before, after].mean())


def asymmetry(weights: Tensor) -> float:
    """Compute the difference between the directions of pairs, as a share of their weight.

    0 where both directions of each pair weigh the same, 1 where only one has any weight.
    """
    between = float(weights.sum() - weights.trace())
    return float((weights - weights.mT).abs().triu(1).sum()) / between if between else 0.0
