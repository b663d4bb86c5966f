"""Quadratic reference implementations for tests and benchmarks."""

import torch
from torch import Tensor
from torch.nn import functional as F

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
    epsilon: float | None = None,
    log_decay: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Compute linear attention by the T x S matrix q k^T (LRPE, Eq. 31 and 39).

    Args:
        q: (B, H, T, D'), features of the queries.
        k: (B, H, S, D'), features of the keys, zero where padded.
        v: (B, H, S, M).
        normalizer_q: (B, H, T, D), the denominator's queries; ``q`` where None.
        normalizer_k: (B, H, S, D), the denominator's keys; ``k`` where None.
        normalize: divide by the denominator.
        min_cosine: see ``causal_linear_attention``.
        epsilon: see ``causal_linear_attention``.
        log_decay: (B or 1, H, T), see ``causal_linear_attention``; only where ``causal``.
        causal: query s sees keys t <= s; needs T = S.

    Returns:
        (B, H, T, M).
    """
    weights = q @ k.mT
    norm_q = q if normalizer_q is None else normalizer_q
    norm_k = k if normalizer_k is None else normalizer_k
    denominators = norm_q @ norm_k.mT
    bounds = norms(norm_q, q.dtype) @ norms(norm_k, q.dtype).mT
    if log_decay is not None:
        factors = _decay_factors(log_decay)
        weights = weights * factors
        if normalizer_q is None:
            denominators, bounds = denominators * factors, bounds * factors
    if causal:
        weights, denominators, bounds = weights.tril(), denominators.tril(), bounds.tril()
    output = weights @ v
    if not normalize:
        return output
    if epsilon is not None:
        return output / denominators.sum(-1, keepdim=True).clamp(min=epsilon)
    floor = min_cosine * bounds.sum(-1, keepdim=True)
    return output / clamp_denominator(denominators.sum(-1, keepdim=True), floor)


def _decay_factors(log_decay: Tensor) -> Tensor:
    """Return exp(sum of log_decay over t + 1..s) for t <= s: (..., T) -> (..., T, T)."""
    at = torch.arange(log_decay.size(-1), device=log_decay.device)
    s, t, u = at[:, None, None], at[:, None], at
    between = ((t < u) & (u <= s)).to(log_decay.dtype)
    return torch.einsum("stu,...u->...st", between, log_decay).exp()


def naive_causal_product(q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return q_s (start + sum_{t <= s} k_t v_t^T), (B, H, T, M), and the last state (B, H, D', M).

    Both have the dtype of ``start``.
    """
    q, k, v = (tensor.to(start.dtype) for tensor in (q, k, v))
    return (q @ k.mT).tril() @ v + q @ start, start + k.mT @ v


def outer_product_linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute causal linear attention by the cumulative sum (B, H, T, D', M) of k_t v_t^T."""
    states = torch.einsum("bhtd,bhtm->bhtdm", k, v).cumsum(2)
    denominators = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)).unsqueeze(-1)
    return torch.einsum("bhtd,bhtdm->bhtm", q, states) / clamp_denominator(denominators)


def naive_linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduce: bool = True,
) -> tuple[Tensor, Tensor]:
    """Compute ``linear_cross_entropy`` by the logits (N, V).

    As in fairseq's ``label_smoothed_nll_loss``, the weights are 1 - e - e_i for the target plus
    e_i = e / (V - 1) for every word.
    """
    log_probs = F.linear(features, weight, bias).log_softmax(-1)
    ignored = target == ignore_index
    at_target = log_probs.gather(1, target.masked_fill(ignored, 0).unsqueeze(1)).squeeze(1)
    nll, loss = -at_target, -at_target
    if label_smoothing:
        spread = label_smoothing / (len(weight) - 1)
        loss = (1.0 - label_smoothing - spread) * nll - spread * log_probs.sum(1)
    loss, nll = (x.masked_fill(ignored, 0.0) for x in (loss, nll.detach()))
    return (loss.sum(), nll.sum()) if reduce else (loss, nll)
