"""Softmax attention without PyTorch's fused kernel: with explicit weights, or head by head.

On a CPU the fused kernel needs values as wide as queries and has no gradient for an added mask.
PyTorch's fallback passes several times over the weights of all heads; those of one head fit in a
cache.

Shapes: B batch, H heads, T queries, S keys, D features, M values.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_plugins.kernels.backend import needs_plain_operations
from fairseq_plugins.kernels.derivatives import first_derivative
from fairseq_plugins.kernels.precision import wide_type, without_autocast

# For fewer pairs of a query and a key, calls per head cost more than they save.
FEWEST_PAIRS = 256 * 256


def can_go_by_head(q: Tensor, k: Tensor) -> bool:
    """Return whether ``softmax_by_head`` runs and is faster than PyTorch's fallback.

    That is so for many pairs on a CPU, in float32 or wider, outside a compiled graph.
    """
    if q.device.type != "cpu" or torch.is_autocast_enabled("cpu") or needs_plain_operations():
        return False
    return q.dtype == wide_type(q) and q.size(2) * k.size(2) >= FEWEST_PAIRS


def softmax_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    added: Sequence[Tensor | None],
    hidden: Tensor | None,
    *,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``softmax(scale q k^T + added) v`` in float32 or wider, and the weights.

    Args:
        q: (B, H, T, D).
        k: (B, H, S, D).
        v: (B, H, S, M).
        added: terms, each broadcast against (B, H, T, S); None for zero.
        hidden: broadcast likewise, bool, True where hidden; None for nothing.
        scale: factor on the products.
        dropout: probability of dropping a weight.

    Returns:
        The output (B, H, T, M), and the weights (B, H, T, S) before and after dropout.
    """
    logits = (scale * q) @ k.mT  # in this order float16 reaches further
    logits = logits.to(wide_type(logits))
    for term in added:
        if term is not None:
            logits = logits + term
    if hidden is not None:
        logits = logits.masked_fill(hidden, float("-inf"))
    weights = logits.softmax(-1).to(v.dtype)
    dropped = F.dropout(weights, dropout)
    return dropped @ v, weights, dropped


def softmax_by_head(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, *, scale: float, share: float = 1.0
) -> Tensor:
    """Compute ``softmax(scale q k^T + share added) v``, with first derivatives only.

    Args:
        q: (B, H, T, D).
        k: (B, H, S, D).
        v: (B, H, S, M).
        added: (B or 1, H or 1, T or 1, S) or (T or 1, S), -inf where a key is hidden; every query
            must see a key.
        scale: factor on the products.
        share: factor on ``added``.

    Returns:
        (B, H, T, M).
    """
    if added is not None:
        added = added[(None,) * (4 - added.dim())].expand(-1, -1, q.size(2), -1)
    result: Tensor = _ByHead.apply(q, k, v, added, scale, share)
    return result


class _ByHead(torch.autograd.Function):
    """Attention head by head, which saves the inputs and the weights (B, H, T, S)."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, share: float
    ) -> Tensor:
        batch, heads, length, _ = q.shape
        weights = q.new_empty(batch, heads, length, k.size(2))
        # Tokens before heads, the memory layout for the output projection.
        output = v.new_empty(batch, length, heads, v.size(-1)).transpose(1, 2)
        for b, h in product(range(batch), range(heads)):
            logits = weights[b, h]
            if added is None:
                torch.mm(q[b, h], k[b, h].mT, out=logits).mul_(scale)
            else:
                added_head = added[_broadcast_index(added, b, h)]
                torch.addmm(added_head, q[b, h], k[b, h].mT, beta=share, alpha=scale, out=logits)
            torch.softmax(logits, -1, out=logits)
            output[b, h] = logits @ v[b, h]
        ctx.save_for_backward(q, k, v, added, weights)
        ctx.scale, ctx.share = scale, share
        return output

    @staticmethod
    @first_derivative
    @without_autocast
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, added, weights = saved
        to_q, to_k, to_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        to_added = torch.zeros_like(added) if ctx.needs_input_grad[3] else None
        for b, h in product(range(q.size(0)), range(q.size(1))):
            p, grad_head = weights[b, h], grad[b, h]
            to_v[b, h] = p.mT @ grad_head
            slopes = torch._softmax_backward_data(grad_head @ v[b, h].mT, p, -1, p.dtype)
            to_q[b, h] = torch.mm(slopes, k[b, h]).mul_(ctx.scale)
            to_k[b, h] = torch.mm(slopes.mT, q[b, h]).mul_(ctx.scale)
            if to_added is not None:
                to_added[_broadcast_index(added, b, h)].add_(slopes, alpha=ctx.share)
        return to_q, to_k, to_v, to_added, None, None


def _broadcast_index(added: Tensor, b: int, h: int) -> tuple[int, int]:
    """Return the index of a row and a head in a tensor (B or 1, H or 1, ...)."""
    return b if added.size(0) > 1 else 0, h if added.size(1) > 1 else 0
