"""Bidirectional linear attention with its denominator and an explicit gradient.

out_s = q_s (sum_t k_t v_t^T) / q_s (sum_t k_t). Autograd would compute and add separate gradients,
each of the size of the input, for the numerator, the denominator and the norms of its clamp.

Shapes: B batch, H heads, T queries, S keys, D' features, M values; N = B H.
"""

import torch
from torch import Tensor

from fairseq_plugins.kernels.derivatives import first_derivative
from fairseq_plugins.kernels.division import division_gradients, slope_of_norms
from fairseq_plugins.kernels.normalizer import clamp_denominator, norms
from fairseq_plugins.kernels.operands import product
from fairseq_plugins.kernels.precision import wide_type, without_autocast


def bidirectional_attention(
    q: Tensor, k: Tensor, v: Tensor, *, min_cosine: float, epsilon: float | None = None
) -> Tensor:
    """Attend with the denominator of the same features.

    Args:
        q: (B, H, T, D').
        k: (B, H, S, D').
        v: (B, H, S, M).
        min_cosine: see ``causal_linear_attention``.
        epsilon: see ``causal_linear_attention``.

    Returns:
        (B, H, T, M) in the dtype of ``v``.
    """
    output: Tensor = _BidirectionalAttention.apply(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), min_cosine, epsilon
    )
    return output.unflatten(0, q.shape[:2])


class _BidirectionalAttention(torch.autograd.Function):
    """Attention of (N, T, D'), (N, S, D') and (N, S, M), computed in float32 or wider."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, q: Tensor, k: Tensor, v: Tensor, min_cosine: float, epsilon: float | None
    ) -> Tensor:
        wide = wide_type(v)
        kv, k_sum = product(k.mT, v, wide), k.sum(1, keepdim=True, dtype=wide)
        q_wide, q_norms, k_norms, floor = q.to(wide), None, None, None
        denominator = torch.bmm(q_wide, k_sum.mT)
        if min_cosine:
            q_norms, k_norms = norms(q, wide), norms(k, wide)
            floor = q_norms * k_norms.sum(1, keepdim=True).mul_(min_cosine)
        divisor = clamp_denominator(denominator, floor, epsilon)
        output = torch.bmm(q_wide, kv).div_(divisor).to(v.dtype)
        ctx.save_for_backward(q, k, v, kv, k_sum, q_norms, k_norms, denominator, divisor, floor)
        ctx.min_cosine, ctx.epsilon = min_cosine, epsilon
        return output

    @staticmethod
    @first_derivative
    @without_autocast
    def backward(  # type: ignore[no-untyped-def]
        ctx, saved: tuple[Tensor, ...], grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, kv, k_sum, q_norms, k_norms, denominator, divisor, floor = saved
        q_wide, k_wide, v_wide = (x.to(kv.dtype) for x in (q, k, v))
        to_numerator = grad.to(kv.dtype) / divisor
        to_kv = torch.bmm(q_wide.mT, to_numerator)
        to_q = torch.bmm(to_numerator, kv.mT)
        # Not from the rounded output: the slope is often a small difference of large numbers.
        row_products = (q_wide * to_q).sum(-1, keepdim=True)
        slopes = division_gradients(row_products, divisor, denominator, floor, ctx.epsilon)
        assert slopes.denominator is not None
        to_k_sum = torch.bmm(slopes.denominator.mT, q_wide)
        to_q.addcmul_(slopes.denominator, k_sum)
        to_k = torch.bmm(v_wide, to_kv.mT).add_(to_k_sum)
        if slopes.floor is not None:
            to_floor = slopes.floor * ctx.min_cosine
            bound = to_floor * k_norms.sum(1, keepdim=True)
            to_q.addcmul_(slope_of_norms(bound, q_norms), q_wide)
            to_norms = (to_floor * q_norms).sum(1, keepdim=True)
            to_k.addcmul_(slope_of_norms(to_norms, k_norms), k_wide)
        to_v = torch.bmm(k_wide, to_kv)
        return to_q.to(q.dtype), to_k.to(k.dtype), to_v.to(v.dtype), None, None
