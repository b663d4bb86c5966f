"""Similarities of position vectors: dot products, cosines, and waves of sinusoids.

"On Position Embeddings in BERT", Sections 3.1 and 4.1, Appendices A, D and G.
"""

import torch
from torch import Tensor

ALIKE = 0.95  # cosine above which Appendix D calls two vectors not significantly different


def dot_products(vectors: Tensor) -> Tensor:
    """Compute <P_x, P_y> of all pairs (Figures 1 and 8): (N, C) -> (N, N)."""
    return vectors @ vectors.mT


def cosines(vectors: Tensor) -> Tensor:
    """Compute cosines of all pairs (Figure 6): (N, C) -> (N, N); 0 with a vector of zeros."""
    return dot_products(torch.nn.functional.normalize(vectors, dim=-1))


def neighbour_cosines(vectors: Tensor) -> Tensor:
    """Compute the cosine of each vector with the next: (N, C) -> (N - 1,)."""
    return cosines(vectors).diagonal(1)


def alike_from(vectors: Tensor, threshold: float = ALIKE) -> int | None:
    """Find the offset from which the relative vectors of a side are all alike (Appendix D).

    Args:
        vectors: (2k + 1, D), for the offsets -k..k.
        threshold: cosine above which two vectors are alike.

    Returns:
        The smallest m such that the vectors of m..k are pairwise alike, and those of -k..-m;
        None where not even the last two of a side are.
    """
    found, reach = cosines(vectors), len(vectors) // 2
    smallest = None
    for offset in range(reach - 1, -1, -1):
        sides = slice(reach + offset, None), slice(0, reach - offset + 1)
        if not all((found[side, side] > threshold).all() for side in sides):
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


def by_offset(matrix: Tensor) -> Tensor:
    """Average each diagonal: (T, T) -> (2T - 1,), for the offsets 1 - T..T - 1."""
    length = len(matrix)
    return torch.stack([matrix.diagonal(k).mean() for k in range(1 - length, length)])
