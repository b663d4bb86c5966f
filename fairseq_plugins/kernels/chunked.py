"""Causal linear attention by chunks, together with its denominator.

out_s = q_s (kv_0 + sum_{t <= s} k_t v_t^T) / q_s (z_0 + sum_{t <= s} k_t). Within a chunk this uses
its C x C weights, whose row sum is the denominator; across chunks, running sums. All chunks share
scratch memory. The inputs, the unrounded output and the denominators are saved for backward, which
recomputes the sums at the borders of chunks.

Shapes: B batch, H heads, T queries and keys, D' features, M values, C chunk; N = B H.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels.division import Slopes, slope_of_norms, undo_division
from fairseq_plugins.kernels.normalizer import clamp_denominator, norms
from fairseq_plugins.kernels.operands import add_product, product, stay_narrow
from fairseq_plugins.kernels.precision import without_autocast


class LinearState(NamedTuple):
    """The state of linear attention: sums over the keys so far, in float32 or wider.

    Attributes:
        kv: (B, H, D', M), the sum of k_t v_t^T.
        k_sum: (B, H, D), the sum of the denominator's keys.
        k_norm: (B, H, 1), the sum of their norms.
    """

    kv: Tensor
    k_sum: Tensor
    k_norm: Tensor


def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: LinearState,
    *,
    min_cosine: float | None,
    epsilon: float | None = None,
    chunk: int,
) -> tuple[Tensor, LinearState]:
    """Attend with the denominator of the same features, or with none.

    Args:
        q: (B, H, T, D').
        k: (B, H, T, D').
        v: (B, H, T, M).
        start: state before the first key; its dtype is that of the computation.
        min_cosine: see ``causal_linear_attention``; None for no denominator, which leaves
            ``k_sum`` and ``k_norm`` unchanged.
        epsilon: see ``causal_linear_attention``.
        chunk: C.

    Returns:
        (B, H, T, M), in the dtype of ``v`` (without a denominator, of the sums), and the state
        after the last key.
    """
    output, *sums = _ChunkedAttention.apply(q, k, v, *start, min_cosine, epsilon, chunk)
    return output, LinearState(*sums)


def chunks(length: int, size: int) -> list[slice]:
    """Split 0..length into slices of ``size``; the last may be shorter."""
    return [slice(i, min(i + size, length)) for i in range(0, length, size)]


def _flat(x: Tensor) -> Tensor:
    """Merge dimensions: (B, H, ...) -> (N, ...), usually without a copy."""
    return x.flatten(0, 1)


def _square(scratch: Tensor, rows: slice) -> Tensor:
    """Return memory for the weights (N, C, C) of a chunk, which may be shorter than the others."""
    size = rows.stop - rows.start
    return scratch if size == scratch.size(1) else scratch.new_empty(scratch.size(0), size, size)


class _ChunkedAttention(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv: Tensor,
        k_sum: Tensor,
        k_norm: Tensor,
        min_cosine: float | None,
        epsilon: float | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide, divides = kv.dtype, min_cosine is not None
        flat_q, flat_k, flat_v = _flat(q), _flat(k), _flat(v)
        state, total = _flat(kv).clone(), _flat(k_sum).unsqueeze(1).clone()
        last_norm, floor = k_norm.clone(), None
        if divides:
            sizes = norms(flat_k, wide).cumsum(1) + _flat(k_norm).unsqueeze(1)
            last_norm = sizes[:, -1].reshape(k_norm.shape).clone()
            floor = sizes.mul_(norms(flat_q, wide)).mul_(min_cosine) if min_cosine else None
        output = torch.empty_like(flat_v, dtype=wide)
        denominator = output.new_empty((*flat_q.shape[:2], 1) if divides else 0, dtype=wide)
        scratch = output.new_empty(flat_q.size(0), chunk, chunk, dtype=wide)
        narrow, is_mixed = stay_narrow(flat_v, flat_v, wide), flat_q.dtype == wide
        for rows in chunks(q.size(2), chunk):
            given = [x[:, rows] for x in (flat_q, flat_k, flat_v)]
            qc, kc, vc = (x.to(wide) for x in given)
            # Weights and sums leave float16's range; q, k and v do not.
            qn, kn, vn = (x.to(v.dtype) for x in given) if narrow else (qc, kc, vc)
            weights = product(qn, kn.mT, wide, out=_square(scratch, rows)).tril_()
            numerator = torch.bmm(weights, vc).baddbmm_(qc, state)
            if divides:
                inside = weights
                if narrow and is_mixed:  # Without rounded operands.
                    inside = qc * kc.cumsum(1)
                raw = torch.bmm(qc, total.mT).add_(inside.sum(-1, keepdim=True))
                denominator[:, rows] = raw
                low = None if floor is None else floor[:, rows]
                numerator /= clamp_denominator(raw, low, epsilon)
                total += kc.sum(1, keepdim=True)
            output[:, rows] = numerator
            add_product(state, kn.mT, vn, out=state)
        output = output.view(v.shape)
        # Not rounded, since the denominator's slope is often a small difference of large numbers.
        kept = output if divides else None
        ctx.save_for_backward(q, k, v, kv, k_sum, k_norm, kept, denominator, floor)
        ctx.min_cosine, ctx.epsilon, ctx.chunk = min_cosine, epsilon, chunk
        ctx.set_materialize_grads(False)
        result = output.to(v.dtype) if divides else output
        return result, state.view(kv.shape), total.view(k_sum.shape), last_norm

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(  # type: ignore[no-untyped-def]
        ctx,
        grad_output: Tensor | None,
        grad_kv: Tensor | None,
        grad_sum: Tensor | None,
        grad_norm: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        q, k, v, kv, k_sum, k_norm, output, denominator, floor = ctx.saved_tensors
        wide = kv.dtype
        flat_q, flat_k, flat_v = _flat(q), _flat(k), _flat(v)
        flat_grad = _flat(torch.zeros_like(v) if grad_output is None else grad_output)
        borders = chunks(q.size(2), ctx.chunk)
        slopes, divisor = Slopes(), None
        if ctx.min_cosine is not None:
            divisor = clamp_denominator(denominator, floor, ctx.epsilon)
            along = _along(flat_grad, _flat(output), wide, borders)
            slopes = undo_division(along, divisor, denominator, floor, ctx.epsilon)
        else:
            grad_norm = None  # That sum has no keys; zeros in a compiled graph, else None.
        to_norms = _norm_slopes(flat_q, flat_k, _flat(k_norm), ctx.min_cosine, slopes, grad_norm)
        states = _border_states(flat_k, flat_v, _flat(kv), borders)
        totals = _border_totals(flat_k, _flat(k_sum), borders if divisor is not None else [])
        # Gradients of the sums that include a key, from the last chunk to the first.
        later = torch.zeros_like(_flat(kv)) if grad_kv is None else _flat(grad_kv).clone()
        later_sum = torch.zeros_like(_flat(k_sum)) if grad_sum is None else _flat(grad_sum).clone()
        later_sum = later_sum.unsqueeze(1)
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (flat_q, flat_k, flat_v))
        scratch = states.new_empty(2, flat_q.size(0), ctx.chunk, ctx.chunk)
        narrow = stay_narrow(flat_v, flat_v, wide)
        for index, rows in reversed([*enumerate(borders)]):
            given = [x[:, rows] for x in (flat_q, flat_k, flat_v)]
            qc, kc, vc = (x.to(wide) for x in given)
            qn, kn = (x.to(v.dtype) for x in given[:2]) if narrow else (qc, kc)
            gc = flat_grad[:, rows].to(wide)
            if divisor is not None:
                gc = gc / divisor[:, rows]
            weights = product(qn, kn.mT, wide, out=_square(scratch[0], rows)).tril_()
            to_weights = torch.bmm(gc, vc.mT, out=_square(scratch[1], rows))
            above = None if slopes.denominator is None else slopes.denominator[:, rows]
            if above is not None:
                to_weights += above
            to_weights.tril_()
            to_q = torch.bmm(to_weights, kc).baddbmm_(gc, states[index].mT)
            to_k = torch.bmm(to_weights.mT, qc).baddbmm_(vc, later.mT)
            if above is not None:
                to_k += later_sum
                to_q.addcmul_(above, totals[index])
                later_sum.baddbmm_(above.mT, qc)
            if to_norms.query is not None:
                to_q.addcmul_(to_norms.query[:, rows], qc)
            if to_norms.key is not None:
                to_k.addcmul_(to_norms.key[:, rows], kc)
            grad_q[:, rows], grad_k[:, rows] = to_q, to_k
            grad_v[:, rows] = torch.bmm(weights.mT, gc).baddbmm_(kc, later)
            later.baddbmm_(qc.mT, gc)
        to_start = to_norms.start
        return (
            grad_q.view(q.shape),
            grad_k.view(k.shape),
            grad_v.view(v.shape),
            later.view(kv.shape),
            later_sum.view(k_sum.shape),
            None if to_start is None else to_start.view(k_norm.shape),
            None,
            None,
            None,
        )


def _along(grad: Tensor, output: Tensor, dtype: torch.dtype, borders: list[slice]) -> Tensor:
    """Return the dot products over M of two (N, T, M), without the whole elementwise product."""
    rows = [(grad[:, at].to(dtype) * output[:, at]).sum(-1, keepdim=True) for at in borders]
    return torch.cat(rows, dim=1)


class _NormSlopes(NamedTuple):
    """Factors of q and k in their gradients through norms; None where there are none.

    Attributes:
        query: (N, T, 1).
        key: (N, T, 1).
        start: (N, 1, 1), the gradient of the norms' sum before the first key.
    """

    query: Tensor | None = None
    key: Tensor | None = None
    start: Tensor | None = None


def _norm_slopes(
    q: Tensor,
    k: Tensor,
    k_norm: Tensor,
    min_cosine: float | None,
    slopes: Slopes,
    grad_norm: Tensor | None,
) -> _NormSlopes:
    """Compute the factors through floor_s = min_cosine |q_s| (sum of |k_t|) and the last sum."""
    if slopes.floor is None and grad_norm is None:
        return _NormSlopes()
    key, query = norms(k, k_norm.dtype), None
    to_sizes = torch.zeros_like(key)
    if slopes.floor is not None:
        length, sizes = norms(q, k_norm.dtype), key.cumsum(1) + k_norm.unsqueeze(1)
        to_floor = slopes.floor * (min_cosine or 0.0)
        query = slope_of_norms(to_floor * sizes, length)
        to_sizes = to_floor * length
    if grad_norm is not None:
        to_sizes[:, -1:] += _flat(grad_norm).unsqueeze(1)
    to_keys = to_sizes.flip(1).cumsum(1).flip(1)
    return _NormSlopes(query, slope_of_norms(to_keys, key), to_keys[:, :1])


def _border_states(k: Tensor, v: Tensor, kv: Tensor, borders: list[slice]) -> Tensor:
    """Return the sum of k v^T before each chunk: (chunks, N, D', M)."""
    states = kv.new_empty(len(borders), *kv.shape)
    states[0] = kv
    for index, rows in enumerate(borders[:-1]):
        add_product(states[index], k[:, rows].mT, v[:, rows], out=states[index + 1])
    return states


def _border_totals(k: Tensor, k_sum: Tensor, borders: list[slice]) -> list[Tensor]:
    """Return the sum of k before each chunk, (N, 1, D') each."""
    totals = [k_sum.unsqueeze(1)]
    for rows in borders[:-1]:
        totals.append(totals[-1] + k[:, rows].sum(1, keepdim=True, dtype=k_sum.dtype))
    return totals
