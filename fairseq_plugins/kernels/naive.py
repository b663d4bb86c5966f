"""Quadratic references: the formulas as written, for tests and benchmarks."""

import torch
from torch import Tensor

from fairseq_plugins.kernels.normalizer import clamp_denominator, norms


def naive_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer_q: Tensor | None = None,
    normalizer_k: Tensor | None = None,
    normalize: bool = True,
    min_cosine: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Linear attention through the T x S matrix q k^T (LRPE, Eq. 31 and 39).

    Args:
        q: (B, H, T, D'), features of the queries.
        k: (B, H, S, D'), features of the keys, zero where padded.
        v: (B, H, S, M).
        normalizer_q: (B, H, T, D), the denominator's queries; ``q`` where None.
        normalizer_k: (B, H, S, D), the denominator's keys; ``k`` where None.
        normalize: divide by the denominator.
        min_cosine: see ``causal_linear_attention``.
        causal: query s sees keys t <= s; needs T = S.

    Returns:
        (B, H, T, M).
    """
    weights = q @ k.mT
    norm_q = q if normalizer_q is None else normalizer_q
    norm_k = k if normalizer_k is None else normalizer_k
    denominators = norm_q @ norm_k.mT
    bounds = norms(norm_q, q.dtype) @ norms(norm_k, q.dtype).mT
    if causal:
        weights, denominators, bounds = weights.tril(), denominators.tril(), bounds.tril()
    output = weights @ v
    if not normalize:
        return output
    floor = min_cosine * bounds.sum(-1, keepdim=True)
    return output / clamp_denominator(denominators.sum(-1, keepdim=True), floor)


def outer_product_linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal linear attention by the cumulative sum of k_t v_t^T: (B, H, T, D', M) in memory."""
    states = torch.einsum("bhtd,bhtm->bhtdm", k, v).cumsum(2)
    denominators = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)).unsqueeze(-1)
    return torch.einsum("bhtd,bhtdm->bhtm", q, states) / clamp_denominator(denominators)
