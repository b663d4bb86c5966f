"""Causal linear attention chunk by chunk; in a compiled graph on a CPU as one operator.

Dynamo cannot trace the compiled library, and would unroll the loop over chunks. Two operators, the
second for gradients, hide both; they have first derivatives only.

Shapes: B batch, H heads, T queries and keys, D' features, M values.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels import native
from fairseq_plugins.kernels.backend import Backend
from fairseq_plugins.kernels.chunked import (
    ChunkedAttention,
    LinearState,
    attend_chunks,
    chunk_gradients,
)

_SixTensors = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def attend_by_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: LinearState,
    *,
    min_cosine: float | None,
    epsilon: float | None = None,
    chunk: int,
    backend: Backend,
    needs_state: bool = True,
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
        backend: ``native`` for the compiled library, where it takes these sizes; or ``torch``.
        needs_state: whether the returned state has gradients; they are left out of a compiled
            graph otherwise.

    Returns:
        (B, H, T, M), in the dtype of ``v`` (without a denominator, of the sums), and the state
        after the last key.
    """
    inputs = (q, k, v, *start, min_cosine, epsilon, chunk)
    if backend == "native" and torch.compiler.is_compiling():
        output, _, _, *sums = _attend(*inputs, needs_state)
        output = output if min_cosine is None else output.to(v.dtype)
    else:
        is_native = backend == "native" and native.fits(q, k, v)
        output, *sums = ChunkedAttention.apply(*inputs, is_native)
    return output, LinearState(*sums)


@torch.library.custom_op("fairseq_plugins::linear_attention", mutates_args=(), device_types="cpu")
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    k_norm: Tensor,
    min_cosine: float | None,
    epsilon: float | None,
    chunk: int,
    needs_state: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the output, denominators and their lower bounds (empty: none), and three sums."""
    inputs = (q, k, v, kv, k_sum, k_norm, min_cosine, epsilon)
    results = native.attend(*inputs) if native.fits(q, k, v) else attend_chunks(*inputs, chunk)
    return _with_strides(results, _shapes(*inputs))


@_attend.register_fake
def _shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    k_norm: Tensor,
    min_cosine: float | None,
    *_: Any,
) -> _SixTensors:
    """Allocate the results of ``_attend``, in the dtype of the sums."""
    denominator = kv.new_empty((*q.shape[:3], 1) if min_cosine is not None else (0,))
    floor = kv.new_empty((*q.shape[:3], 1) if min_cosine else (0,))
    output = native.empty_like(v).to(kv.dtype)
    return (output, denominator, floor, *_contiguous(kv, k_sum, k_norm))


@torch.library.custom_op(
    "fairseq_plugins::linear_attention_gradients", mutates_args=(), device_types="cpu"
)
def _differentiate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    k_norm: Tensor,
    output: Tensor,
    denominator: Tensor,
    floor: Tensor,
    grad: Tensor,
    grad_kv: Tensor | None,
    grad_sum: Tensor | None,
    grad_norm: Tensor | None,
    min_cosine: float | None,
    epsilon: float | None,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v and the three sums; zeros where there is none."""
    saved = (
        None if min_cosine is None else output,
        None if min_cosine is None else denominator,
        floor if min_cosine else None,
    )
    later = (
        torch.zeros_like(kv) if grad_kv is None else grad_kv,
        torch.zeros_like(k_sum) if grad_sum is None else grad_sum,
        torch.zeros_like(k_norm) if grad_norm is None and min_cosine else grad_norm,
    )
    inputs = (q, k, v, (kv, k_sum, k_norm), saved, grad, later, min_cosine, epsilon)
    grads = native.gradients(*inputs) if native.fits(q, k, v) else chunk_gradients(*inputs, chunk)
    return _with_strides(grads, _gradient_shapes(q, k, v, kv, k_sum, k_norm))


@_differentiate.register_fake
def _gradient_shapes(
    q: Tensor, k: Tensor, v: Tensor, kv: Tensor, k_sum: Tensor, k_norm: Tensor, *_: Any
) -> _SixTensors:
    """Allocate the results of ``_differentiate``."""
    to_q, to_k, to_v = (native.empty_like(x) for x in (q, k, v))
    return (to_q, to_k, to_v, *_contiguous(kv, k_sum, k_norm))


def _contiguous(kv: Tensor, k_sum: Tensor, k_norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate contiguous tensors of these shapes and dtypes."""
    kv, k_sum, k_norm = (x.new_empty(x.shape) for x in (kv, k_sum, k_norm))
    return kv, k_sum, k_norm


def _with_strides(tensors: tuple[Tensor | None, ...], expected: _SixTensors) -> _SixTensors:
    """Copy tensors whose strides a graph does not expect; zeros replace None."""
    results = []
    for tensor, target in zip(tensors, expected, strict=True):
        if tensor is None:
            results.append(target.zero_())
        elif tensor.stride() == target.stride():
            results.append(tensor)
        else:
            results.append(target.copy_(tensor))
    return tuple(results)  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: _SixTensors) -> None:
    *tensors, ctx.min_cosine, ctx.epsilon, ctx.chunk, ctx.needs_state = inputs
    ctx.save_for_backward(*tensors, *output[:3])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    grad = torch.zeros_like(ctx.saved_tensors[2]) if grads[0] is None else grads[0]
    later = grads[3:] if ctx.needs_state else (None, None, None)
    if ctx.min_cosine is None:
        later = (*later[:2], None)
    options = (ctx.min_cosine, ctx.epsilon, ctx.chunk)
    return (*_differentiate(*ctx.saved_tensors, grad, *later, *options), None, None, None, None)


_attend.register_autograd(_backward, setup_context=_save)
