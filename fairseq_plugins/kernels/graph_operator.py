"""Causal linear attention as one operator of a compiled graph, for float32 on a CPU.

Dynamo cannot trace the compiled library, and would unroll the loop over chunks. Two operators, the
second for gradients, hide both; they have first derivatives only.

Shapes: B batch, H heads, T queries and keys, D' features, M values.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels import native
from fairseq_plugins.kernels.chunked import LinearState, attend_chunks, chunk_gradients

_Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def graph_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: LinearState,
    *,
    min_cosine: float | None,
    epsilon: float | None = None,
    chunk: int,
    needs_state: bool,
) -> tuple[Tensor, LinearState]:
    """Attend as ``chunked_attention`` does, as one node of a graph.

    Args:
        q: (B, H, T, D').
        k: (B, H, T, D').
        v: (B, H, T, M).
        start: see ``chunked_attention``.
        min_cosine: likewise.
        epsilon: likewise.
        chunk: likewise.
        needs_state: whether the returned state has gradients.
    """
    output, _, _, *sums = _attend(q, k, v, *start, min_cosine, epsilon, chunk, needs_state)
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
    given = (q, k, v, kv, k_sum, k_norm, min_cosine, epsilon)
    found = native.attend(*given) if native.fits(q, k, v) else attend_chunks(*given, chunk)
    return _laid_out(found, _shapes(*given))


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
) -> _Six:
    """Allocate the results of ``_attend``."""
    denominator = q.new_empty((*q.shape[:3], 1) if min_cosine is not None else (0,))
    floor = q.new_empty((*q.shape[:3], 1) if min_cosine else (0,))
    return (native.empty_like(v), denominator, floor, *_whole(kv, k_sum, k_norm))


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
    """Return the gradients of q, k, v and the three sums; an empty one has no gradient."""
    made = (output, denominator, floor) if min_cosine is not None else (None, None, None)
    if not min_cosine:
        made = (*made[:2], None)
    later = (
        torch.zeros_like(kv) if grad_kv is None else grad_kv,
        torch.zeros_like(k_sum) if grad_sum is None else grad_sum,
        torch.zeros_like(k_norm) if grad_norm is None and min_cosine else grad_norm,
    )
    given = (q, k, v, (kv, k_sum, k_norm), made, grad, later, min_cosine, epsilon)
    found = native.gradients(*given) if native.fits(q, k, v) else chunk_gradients(*given, chunk)
    return _laid_out(found, _gradient_shapes(q, k, v, kv, k_sum, k_norm))


@_differentiate.register_fake
def _gradient_shapes(
    q: Tensor, k: Tensor, v: Tensor, kv: Tensor, k_sum: Tensor, k_norm: Tensor, *_: Any
) -> _Six:
    """Allocate the results of ``_differentiate``."""
    to_q, to_k, to_v = (native.empty_like(x) for x in (q, k, v))
    return (to_q, to_k, to_v, *_whole(kv, k_sum, k_norm))


def _whole(kv: Tensor, k_sum: Tensor, k_norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    kv, k_sum, k_norm = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (kv, k_sum, k_norm)
    )
    return kv, k_sum, k_norm


def _laid_out(found: tuple[Tensor | None, ...], shapes: _Six) -> _Six:
    """Return tensors with the strides that a graph expects, copied where they differ; None is 0."""
    results = []
    for one, shape in zip(found, shapes, strict=True):
        if one is None:
            results.append(shape.zero_())
        elif one.stride() == shape.stride():
            results.append(one)
        else:
            results.append(shape.copy_(one))
    return tuple(results)  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Six) -> None:
    *tensors, ctx.min_cosine, ctx.epsilon, ctx.chunk, ctx.needs_state = inputs
    ctx.save_for_backward(*tensors, *output[:3])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    grad = torch.zeros_like(ctx.saved_tensors[2]) if grads[0] is None else grads[0]
    later = grads[3:] if ctx.needs_state else (None, None, None)
    if ctx.min_cosine is None:
        later = (*later[:2], None)
    options = (ctx.min_cosine, ctx.epsilon, ctx.chunk)
    found = _differentiate(*ctx.saved_tensors, grad, *later, *options)
    return (*found, None, None, None, None)


_attend.register_autograd(_backward, setup_context=_save)
