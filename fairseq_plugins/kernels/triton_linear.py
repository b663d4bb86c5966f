"""Causal linear attention on a GPU by the kernels of ``triton_kernels``.

A sequence is cut into segments of a few chunks. Three launches compute the outputs: the sum of
k_t v_t^T over every segment; the running sums of these, one per 256 tokens; and all segments at
once, each from its first chunk to its last with the state in registers. Four more compute the
gradients: that of q, like the outputs, from the saved states; the sums of q_s grad_s^T over every
segment; their running sums from the end; and from these the gradients of k and v, each segment from
its last chunk to its first.

One program per batch row and head for the whole sequence would be too few: at B = H = 8 that is 64
programs for the 132 multiprocessors of an H100, with T / 64 steps one after another. Segments are
512 programs of four steps at T = 2,048 and 2,048 at T = 8,192. In return k and v are read once
more, mostly from the L2 cache. States at the border of every chunk would be most of the memory
traffic, which bounds the time: one of 64 x 64 floats is as large as 128 bfloat16 rows.

Sums are float32. Tensor cores multiply bfloat16 inputs as they are. Float16 inputs are cast to
TF32, which represents them exactly and has the range that sums need. A product of float32 inputs
takes three TF32 products, for an error of 1e-6. Without atomic additions, results are
deterministic.

Features may be float32 beside half-precision values: they are rounded to the values' type for the
products, and have gradients in float32, since those of small features leave float16's range.

A denominator of the same features is computed in the same pass, as one more column of the sums; its
gradients take one more small launch.

Backward needs the inputs and the segments' states, one (D, M) float32 matrix per 256 tokens of a
row and head. Wide features or values are cut into parts, in float32, whose products are added.

Shapes: B batch, H heads, T tokens, D' features, M values.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from fairseq_plugins.kernels import triton_kernels as kernels
from fairseq_plugins.kernels.chunked import chunks
from fairseq_plugins.kernels.derivatives import first_derivative
from fairseq_plugins.kernels.normalizer import MIN_DENOMINATOR, clamp_denominator
from fairseq_plugins.kernels.triton_blocks import Plan, block_width, choose_blocks, widest_part

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def causal_product(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute out_s = q_s (start + sum_{t <= s} k_t v_t^T), and the state after the last key.

    Args:
        q: (B, H, T, D').
        k: (B, H, T, D').
        v: (B, H, T, M).
        start: (B, H, D', M), zero where None.

    Returns:
        (B, H, T, M) and (B, H, D', M), both float32.
    """
    dtype = _common_dtype(q, k, v)
    start = None if start is None else start.float()
    if _is_narrow(q, v, dtype):
        return _Causal.apply(q, k, v, start, None)
    # In half precision the gradient of each part would be rounded before they are added.
    q, k, v = q.float(), k.float(), v.float()
    features, values = widest_part(_capability(q), torch.float32)
    columns = [
        _sum_of_features(q, k, v[..., m], None if start is None else start[..., m], features)
        for m in chunks(v.size(-1), values)
    ]
    return torch.cat([c[0] for c in columns], -1), torch.cat([c[1] for c in columns], -1)


def _sum_of_features(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor | None, widest: int
) -> tuple[Tensor, Tensor]:
    """Compute the product for wide q and k as a sum over parts of the features."""
    parts = [
        _Causal.apply(q[..., d], k[..., d], v, None if start is None else start[..., d, :], None)
        for d in chunks(q.size(-1), widest)
    ]
    output = parts[0][0]
    for part in parts[1:]:
        output = output + part[0]
    return output, torch.cat([part[1] for part in parts], -2)


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    normalizer_q: Tensor | None,
    normalizer_k: Tensor | None,
    min_cosine: float,
    epsilon: float | None = None,
) -> Tensor | None:
    """Compute ``causal_linear_attention`` of a whole sequence; None for unsupported cases.

    A denominator of the same features is computed in the same pass; one of other features is the
    causal product with values of one.
    """
    dtype = _common_dtype(q, k, v)
    if normalizer_q is not None and normalizer_k is not None:
        if min_cosine:
            return None
        ones = torch.ones_like(normalizer_k[..., :1])
        denominator, _ = causal_product(normalizer_q, normalizer_k, ones)
        divisor = clamp_denominator(denominator, epsilon=epsilon)
        return (causal_product(q, k, v)[0] / divisor).to(v.dtype)
    if not _is_narrow(q, v, dtype):
        return None
    output, _ = _Causal.apply(q, k, v, None, Division(float(min_cosine), epsilon))
    return output.to(v.dtype)


def _is_narrow(q: Tensor, v: Tensor, dtype: torch.dtype) -> bool:
    """Return whether all features and values fit in the registers of one kernel."""
    features, values = widest_part(_capability(q), dtype)
    return q.size(-1) <= features and v.size(-1) <= values


def _capability(tensor: Tensor) -> tuple[int, int]:
    """Return the compute capability of the tensor's GPU; the least one for the interpreter."""
    return torch.cuda.get_device_capability(tensor.device) if tensor.is_cuda else (8, 0)


def _common_dtype(q: Tensor, k: Tensor, v: Tensor) -> torch.dtype:
    """Choose the dtype of the operands: the promoted type, or that of half-precision values.

    Features beside such values may be float32, for gradients that leave float16's range.
    """
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    if dtype == torch.float32 and v.dtype in (torch.float16, torch.bfloat16):
        dtype = v.dtype
    if dtype not in DTYPES:
        raise ValueError(
            f"the Triton kernel takes {', '.join(str(d) for d in DTYPES)}, but got {dtype}."
        )
    return dtype


def _plan(q: Tensor, v: Tensor) -> Plan:
    widest = max(block_width(q.size(-1)), block_width(v.size(-1)))
    blocks = choose_blocks(_capability(q), q.dtype, widest)
    batch, heads, length = q.shape[:3]
    return Plan((batch, heads, length), q.size(-1), v.size(-1), blocks, q.dtype)


def _strided(tensor: Tensor) -> tuple[Tensor, int, int, int]:
    """Return a tensor dense in its last dimension, with strides of batch, head and token."""
    if tensor.stride(-1) != 1:
        tensor = tensor.contiguous()
    return tensor, tensor.stride(0), tensor.stride(1), tensor.stride(2)


class Division(NamedTuple):
    """Clamping of denominators; see ``causal_linear_attention`` for both values."""

    min_cosine: float
    epsilon: float | None

    @property
    def least(self) -> float:
        """The constant lower bound of a denominator's absolute value."""
        return MIN_DENOMINATOR if self.epsilon is None else self.epsilon


def _on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the tensor's device current, on which Triton launches."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _slots(
    plan: Plan,
    a: Tensor,
    b: Tensor,
    start: Tensor | None,
    *,
    backward: bool = False,
    normalize: bool = False,
    rows: tuple[Tensor | None, ...] = (None, None, None),
) -> Tensor:
    """Compute the states at the borders of segments: (pairs, segments, floats of a slot)."""
    kv = plan.features * plan.values
    # Rounded up to whole vectors of four, so that each slot is aligned.
    width = kv + (-(-(plan.features + 1) // 4) * 4 if normalize else 0)
    if plan.segments == 1:
        if start is None:
            return a.new_zeros(plan.pairs, 1, width, dtype=torch.float32)
        return start.contiguous().view(plan.pairs, 1, kv)
    start = start if start is None else start.contiguous()
    slots = a.new_empty(plan.pairs, plan.segments, width, dtype=torch.float32)
    grid = (plan.pairs, plan.segments)
    kernels.segment_sums[grid](
        *_strided(a), *_strided(b),
        start, slots, *rows,
        plan.shape[1], plan.shape[2], plan.segments,
        SLOT=width, BACKWARD=backward, NORMALIZE=normalize, HAS_START=start is not None,
        **plan.segmented(),
    )  # fmt: skip
    block = 128
    kernels.scan_slots[(plan.pairs, triton.cdiv(width, block))](
        slots, plan.segments, SLOT=width, BLOCK=block, SLOTS=16, BACKWARD=backward, num_warps=4
    )
    return slots


class _Causal(torch.autograd.Function):
    """``causal_product`` of features and values that are not too wide for one kernel.

    With a ``division`` the output is divided by its denominator and has the dtype of ``v``, and
    there is no last state.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, q: Tensor, k: Tensor, v: Tensor, start: Tensor | None, division: Division | None
    ) -> tuple[Tensor, Tensor | None]:
        ctx.dtypes, dtype = [x.dtype for x in (q, k, v)], _common_dtype(q, k, v)
        q, k, v = (x.to(dtype) for x in (q, k, v))
        plan, normalize = _plan(q, v), division is not None
        output = torch.empty(
            v.shape, dtype=v.dtype if normalize else torch.float32, device=v.device
        )
        end = q.new_empty(0, dtype=torch.float32)  # Not None, which Dynamo cannot trace.
        statistics: tuple[Tensor | None, ...] = (None, None)
        if normalize:
            statistics = _rows(plan, q, 2)
        else:
            end = q.new_empty(*plan.shape[:2], plan.features, plan.values, dtype=torch.float32)
        with _on(q):
            slots = _slots(plan, k, v, start, normalize=normalize)
            kernels.outputs[(plan.pairs, plan.segments)](
                *_strided(q), *_strided(k), *_strided(v),
                slots, output, None if normalize else end, *statistics,
                *plan.shape[1:], plan.segments,
                division.min_cosine if division else 0.0,
                division.least if division else MIN_DENOMINATOR,
                SLOT=slots.size(2), NORMALIZE=normalize, **_clamping(division), **plan.segmented(),
            )  # fmt: skip
        ctx.save_for_backward(q, k, v, slots, output if normalize else None, *statistics)
        ctx.plan, ctx.division, ctx.has_start = plan, division, start is not None
        return output, end

    @staticmethod
    @first_derivative
    def backward(  # type: ignore[no-untyped-def]
        ctx, saved: tuple[Tensor, ...], grad_output: Tensor, grad_end: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        q, k, v, slots, output, raw, sizes = saved
        plan, division = ctx.plan, ctx.division
        normalize = division is not None
        floor = _clamping(division)["FLOOR"]
        constants = plan.segmented() | {"NORMALIZE": normalize, "FLOOR": floor}
        grads = [
            torch.empty(x.shape, dtype=dtype, device=x.device)
            for x, dtype in zip((q, k, v), ctx.dtypes, strict=True)
        ]
        grad_start: Tensor | None = None
        rows: tuple[Tensor | None, ...] = (None, None, None)
        if not normalize:
            grad_start = q.new_empty(
                *plan.shape[:2], plan.features, plan.values, dtype=torch.float32
            )
        grid = (plan.pairs, plan.segments)
        inputs = (*_strided(q), *_strided(k), *_strided(v), *_strided(grad_output))
        with _on(q):
            if division is not None:
                rows = _row_gradients(plan, q, grad_output, output, raw, sizes, division)
            kernels.query_gradients[grid](
                *inputs, slots, grads[0], sizes, *rows, *plan.shape[1:], plan.segments,
                SLOT=slots.size(2), **constants,
            )  # fmt: skip
            later = _slots(
                plan,
                q,
                grad_output,
                None if normalize else grad_end,
                backward=True,
                normalize=normalize,
                rows=rows,
            )
            kernels.key_value_gradients[grid](
                *inputs, later, grads[1], grads[2], grad_start, *rows,
                *plan.shape[1:], plan.segments,
                SLOT=later.size(2), **constants,
            )  # fmt: skip
        return *grads, grad_start if ctx.has_start else None, None


def _clamping(division: Division | None) -> dict[str, bool]:
    """Return the compile-time arguments of kernels that clamp denominators."""
    return {
        "FLOOR": division is not None and bool(division.min_cosine),
        "SIGNED": division is None or division.epsilon is None,
    }


def _rows(plan: Plan, like: Tensor, count: int) -> tuple[Tensor, ...]:
    """Allocate ``count`` numbers per query."""
    return like.new_empty(count, *plan.shape, dtype=torch.float32).unbind()


def _row_gradients(
    plan: Plan,
    q: Tensor,
    grad_output: Tensor,
    output: Tensor,
    raw: Tensor,
    sizes: Tensor,
    division: Division,
) -> tuple[Tensor, ...]:
    """Compute per query 1 / denominator and the gradients of the denominator and its bound."""
    rows = _rows(plan, q, 3)
    kernels.row_gradients[(plan.pairs, triton.cdiv(plan.shape[2], plan.blocks.chunk))](
        *_strided(q), *_strided(grad_output), output, raw, sizes, *rows,
        *plan.shape[1:], division.min_cosine, division.least,
        **_clamping(division), **plan.constants(),
    )  # fmt: skip
    return rows
