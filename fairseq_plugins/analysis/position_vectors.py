"""Similarity of position vectors: dot products, cosines, and the waves of sinusoids.

"On Position Embeddings in BERT", Sections 3.1 and 4.1, Appendices A, D and G.
"""

import torch
from torch import Tensor

ALIKE = 0.95  # cosine from which on Appendix D calls two vectors not significantly different


def dot_products(vectors: Tensor) -> Tensor:
    """<P_x, P_y> of any two (Figures 1 and 8): (N, C) -> (N, N)."""
    return vectors @ vectors.mT


def cosines(vectors: Tensor) -> Tensor:
    """Cosine similarity of any two (Figure 6): (N, C) -> (N, N); 0 with a vector of zeros."""
    return dot_products(torch.nn.functional.normalize(vectors, dim=-1))


def neighbour_cosines(vectors: Tensor) -> Tensor:
    """Cosine similarity of each vector with the next one: (N, C) -> (N - 1,)."""
    return cosines(vectors).diagonal(1)


def alike_from(vectors: Tensor, threshold: float = ALIKE) -> int | None:
    """From which distance on relative vectors of one side are all alike (Appendix D).

    Args:
        vectors: (2k + 1, D), of the offsets -k..k.
        threshold: cosine from which on two vectors are alike.

    Returns:
        The smallest m at which the vectors of m..k are pairwise alike and those of -k..-m are;
        None where not even the two furthest of a side are.
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
    """cos(w_i m), Figure 3 (a): frequencies (n,), offsets (M,) -> (n, M) float64."""
    return (frequencies.double().unsqueeze(1) * offsets.double()).cos()


def closeness(frequencies: Tensor, offsets: Tensor) -> Tensor:
    """psi(m) = sum_i cos(w_i m), the dot product of vectors m apart (Eq. 6): (M,) float64."""
    return waves(frequencies, offsets).sum(0)


def first_rise(values: Tensor) -> int | None:
    """The first index at which a sequence is above the one before; None where it never is.

    psi is monotone up to the one before.

    values: (M,).
    """
    rises = torch.nonzero(values.diff() > 0)
    return int(rises[0]) + 1 if len(rises) else None


def by_offset(matrix: Tensor) -> Tensor:
    """The mean over each diagonal: (T, T) -> (2T - 1,), of the offsets 1 - T..T - 1."""
    length = len(matrix)
    return torch.stack([matrix.diagonal(k).mean() for k in range(1 - length, length)])
