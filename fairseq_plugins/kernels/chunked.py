"""Causal linear attention by chunks, together with its denominator.

out_s = q_s (kv_0 + sum_{t <= s} k_t v_t^T) / q_s (z_0 + sum_{t <= s} k_t). Within a chunk this uses
its C x C weights, whose row sums are the denominators; across chunks, running sums. All chunks
share scratch memory. The inputs, the unrounded output and the denominators are saved for backward,
which recomputes the sums at the borders of chunks.

Shapes: B batch, H heads, T queries and keys, D' features, M values, C chunk; N = B H.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels import native
from fairseq_plugins.kernels.derivatives import first_derivative
from fairseq_plugins.kernels.division import Slopes, division_gradients, slope_of_norms
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


def chunks(length: int, size: int) -> list[slice]:
    """Split 0..length into slices of ``size``; the last may be shorter."""
    return [slice(i, min(i + size, length)) for i in range(0, length, size)]


def _flat(x: Tensor) -> Tensor:
    """Merge batch and heads: (B, H, ...) -> (N, ...), usually without a copy."""
    return x.flatten(0, 1)


def _square(scratch: Tensor, rows: slice) -> Tensor:
    """Return the scratch memory for the weights (N, C, C); new memory for a shorter last chunk."""
    size = rows.stop - rows.start
    return scratch if size == scratch.size(1) else scratch.new_empty(scratch.size(0), size, size)


class ChunkedAttention(torch.autograd.Function):
    """Attention and the sums after the last key, by the compiled library where ``is_native``."""

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
        is_native: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        sums = (kv, k_sum, k_norm)
        if is_native:
            computed = native.attend(q, k, v, *sums, min_cosine, epsilon)
        else:
            computed = attend_chunks(q, k, v, *sums, min_cosine, epsilon, chunk)
        output, denominator, floor, state, total, last_norm = computed
        divides = denominator is not None
        # Not rounded, since the denominator's slope is often a small difference of large numbers.
        unrounded = output if divides else None
        ctx.save_for_backward(q, k, v, *sums, unrounded, denominator, floor)
        ctx.min_cosine, ctx.epsilon, ctx.chunk = min_cosine, epsilon, chunk
        ctx.is_native = is_native
        ctx.set_materialize_grads(False)
        result = output.to(v.dtype) if divides else output
        return result, state, total, last_norm

    @staticmethod
    @first_derivative
    @without_autocast
    def backward(  # type: ignore[no-untyped-def]
        ctx,
        saved: Any,
        grad_output: Tensor | None,
        grad_kv: Tensor | None,
        grad_sum: Tensor | None,
        grad_norm: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        q, k, v, kv, k_sum, k_norm, *rest = saved
        grad = torch.zeros_like(v) if grad_output is None else grad_output
        grad_kv = torch.zeros_like(kv) if grad_kv is None else grad_kv
        grad_sum = torch.zeros_like(k_sum) if grad_sum is None else grad_sum
        if ctx.min_cosine is None:
            grad_norm = None  # That sum has no keys; zeros in a compiled graph, else None.
        elif grad_norm is None and ctx.min_cosine:
            grad_norm = torch.zeros_like(k_norm)
        later = (grad_kv, grad_sum, grad_norm)
        inputs = (q, k, v, (kv, k_sum, k_norm), rest, grad, later, ctx.min_cosine, ctx.epsilon)
        grads = native.gradients(*inputs) if ctx.is_native else chunk_gradients(*inputs, ctx.chunk)
        return (*grads, None, None, None, None)


def attend_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    k_norm: Tensor,
    min_cosine: float | None,
    epsilon: float | None,
    chunk: int,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor, Tensor]:
    """Attend to all earlier keys, chunk by chunk.

    Args:
        q: (B, H, T, D').
        k: (B, H, T, D').
        v: (B, H, T, M).
        kv: (B, H, D', M), the sum before the first key.
        k_sum: (B, H, D'), likewise.
        k_norm: (B, H, 1), likewise.
        min_cosine: see ``attend_by_chunks``.
        epsilon: see ``clamp_denominator``.
        chunk: C.

    Returns:
        The output (B, H, T, M); the unclamped denominators and their lower bounds (B, H, T, 1),
        None where there are none; and the three sums after the last key. All are in the dtype of
        ``kv``.
    """
    wide, divides = kv.dtype, min_cosine is not None
    last_norm, floor = k_norm.clone(), None
    if divides:
        sizes = norms(k, wide).cumsum(2) + k_norm.unsqueeze(2)
        last_norm = sizes[:, :, -1].clone()
        floor = sizes.mul_(norms(q, wide)).mul_(min_cosine) if min_cosine else None
    flat_q, flat_k, flat_v = _flat(q), _flat(k), _flat(v)
    state, total = _flat(kv).clone(), _flat(k_sum).unsqueeze(1).clone()
    output = torch.empty_like(flat_v, dtype=wide)
    denominator = output.new_empty(*flat_q.shape[:2], 1) if divides else None
    scratch = output.new_empty(flat_q.size(0), chunk, chunk)
    narrow, is_mixed = stay_narrow(flat_v, flat_v, wide), flat_q.dtype == wide
    for rows in chunks(q.size(2), chunk):
        qkv = [x[:, rows] for x in (flat_q, flat_k, flat_v)]
        qc, kc, vc = (x.to(wide) for x in qkv)
        # Weights and sums leave float16's range; q, k and v do not.
        qn, kn, vn = (x.to(v.dtype) for x in qkv) if narrow else (qc, kc, vc)
        weights = product(qn, kn.mT, wide, out=_square(scratch, rows)).tril_()
        numerator = torch.bmm(weights, vc).baddbmm_(qc, state)
        if denominator is not None:
            inside = weights
            if narrow and is_mixed:  # Without rounded operands.
                inside = qc * kc.cumsum(1)
            raw = torch.bmm(qc, total.mT).add_(inside.sum(-1, keepdim=True))
            denominator[:, rows] = raw
            low = None if floor is None else _flat(floor)[:, rows]
            numerator /= clamp_denominator(raw, low, epsilon)
            total += kc.sum(1, keepdim=True)
        output[:, rows] = numerator
        add_product(state, kn.mT, vn, out=state)
    if denominator is not None:
        denominator = denominator.view(*q.shape[:3], 1)
    sums = (state.view(kv.shape), total.view(k_sum.shape), last_norm)
    return output.view(v.shape), denominator, floor, *sums


def chunk_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sums: tuple[Tensor, Tensor, Tensor],
    saved: tuple[Tensor | None, Tensor | None, Tensor | None],
    grad: Tensor,
    later: tuple[Tensor, Tensor, Tensor | None],
    min_cosine: float | None,
    epsilon: float | None,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Compute the gradients of ``attend_chunks``, from the last chunk to the first.

    Args:
        q: (B, H, T, D').
        k: (B, H, T, D').
        v: (B, H, T, M).
        sums: ``kv``, ``k_sum`` and ``k_norm`` before the first key.
        saved: the output, the unclamped denominators and their lower bounds, or None.
        grad: (B, H, T, M), of the output.
        later: the gradients of the sums after the last key; None for that of ``k_norm`` if nothing
            depends on norms.
        min_cosine: see ``attend_by_chunks``.
        epsilon: see ``clamp_denominator``.
        chunk: C.

    Returns:
        The gradients of q, k, v and the sums.
    """
    (kv, k_sum, k_norm), (output, denominator, floor) = sums, saved
    wide, borders = kv.dtype, chunks(q.size(2), chunk)
    slopes, divisor = Slopes(), None
    if output is not None and denominator is not None:
        divisor = clamp_denominator(denominator, floor, epsilon)
        row_products = _row_products(grad, output, wide, borders)
        slopes = division_gradients(row_products, divisor, denominator, floor, epsilon)
    slope = slopes.denominator
    q_factor, k_factor, to_norm = _norm_slopes(q, k, k_norm, min_cosine, slopes, later[2])
    flat_q, flat_k, flat_v, flat_grad = _flat(q), _flat(k), _flat(v), _flat(grad)
    states = _border_states(flat_k, flat_v, _flat(kv), borders)
    totals = _border_totals(flat_k, _flat(k_sum), borders if divisor is not None else [])
    to_kv, to_sum = _flat(later[0]).clone(), _flat(later[1]).unsqueeze(1).clone()
    grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (flat_q, flat_k, flat_v))
    scratch = states.new_empty(2, flat_q.size(0), chunk, chunk)
    narrow = stay_narrow(flat_v, flat_v, wide)
    for index, rows in reversed([*enumerate(borders)]):
        qkv = [x[:, rows] for x in (flat_q, flat_k, flat_v)]
        qc, kc, vc = (x.to(wide) for x in qkv)
        qn, kn = (x.to(v.dtype) for x in qkv[:2]) if narrow else (qc, kc)
        gc = flat_grad[:, rows].to(wide)
        if divisor is not None:
            gc = gc / _flat(divisor)[:, rows]
        weights = product(qn, kn.mT, wide, out=_square(scratch[0], rows)).tril_()
        to_weights = torch.bmm(gc, vc.mT, out=_square(scratch[1], rows))
        above = None if slope is None else _flat(slope)[:, rows]
        if above is not None:
            to_weights += above
        to_weights.tril_()
        to_q = torch.bmm(to_weights, kc).baddbmm_(gc, states[index].mT)
        to_k = torch.bmm(to_weights.mT, qc).baddbmm_(vc, to_kv.mT)
        if above is not None:
            to_k += to_sum
            to_q.addcmul_(above, totals[index])
            to_sum.baddbmm_(above.mT, qc)
        if q_factor is not None:
            to_q.addcmul_(_flat(q_factor)[:, rows], qc)
        if k_factor is not None:
            to_k.addcmul_(_flat(k_factor)[:, rows], kc)
        grad_q[:, rows], grad_k[:, rows] = to_q, to_k
        grad_v[:, rows] = torch.bmm(weights.mT, gc).baddbmm_(kc, to_kv)
        to_kv.baddbmm_(qc.mT, gc)
    grads = (grad_q.view(q.shape), grad_k.view(k.shape), grad_v.view(v.shape))
    return *grads, to_kv.view(kv.shape), to_sum.view(k_sum.shape), to_norm


def _row_products(grad: Tensor, output: Tensor, dtype: torch.dtype, borders: list[slice]) -> Tensor:
    """Sum the products of two (B, H, T, M) over M, chunk by chunk to save memory."""
    rows = [(grad[:, :, at].to(dtype) * output[:, :, at]).sum(-1, keepdim=True) for at in borders]
    return torch.cat(rows, dim=2)


def _norm_slopes(
    q: Tensor,
    k: Tensor,
    k_norm: Tensor,
    min_cosine: float | None,
    slopes: Slopes,
    grad_norm: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute gradients through floor_s = min_cosine |q_s| (sum of |k_t|) and the last sum.

    Returns:
        The factors of q and k in their gradients, (B, H, T, 1) each, and the gradient (B, H, 1) of
        the norms' sum before the first key; None where there are none.
    """
    if slopes.floor is None and grad_norm is None:
        return None, None, None
    key, query = norms(k, k_norm.dtype), None
    to_sizes = torch.zeros_like(key)
    if slopes.floor is not None:
        length, sizes = norms(q, k_norm.dtype), key.cumsum(2) + k_norm.unsqueeze(2)
        to_floor = slopes.floor * (min_cosine or 0.0)
        query = slope_of_norms(to_floor * sizes, length)
        to_sizes = to_floor * length
    if grad_norm is not None:
        to_sizes[:, :, -1] += grad_norm
    to_keys = to_sizes.flip(2).cumsum(2).flip(2)
    return query, slope_of_norms(to_keys, key), to_keys[:, :, 0]


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
