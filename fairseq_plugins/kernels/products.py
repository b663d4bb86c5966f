"""The products q_s (sum_{t <= s} k_t v_t^T), with optional decay, by chunks.

Only the inputs are saved; backward recomputes the states at the borders of chunks.

Shapes: B batch, H heads, T queries and keys, D' features, M values, C chunk.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.kernels.backend import (
    choose_backend,
    goes_by_chunks,
    is_traced,
    takes_all_chunks,
)
from fairseq_plugins.kernels.chunked import LinearState
from fairseq_plugins.kernels.graph_operator import attend_by_chunks
from fairseq_plugins.kernels.naive import naive_causal_product

_SEGMENT = 16  # chunks computed at once on a CPU


def causal_product(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor, log_decay: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """Compute products with the running sum, and the sum after the last key.

    Args:
        q: (B, H, T, D').
        k: (B, H, T, D').
        v: (B, H, T, M).
        start: (B, H, D', M), the sum before the first key; its dtype is that of the results.
        log_decay: see ``causal_linear_attention``; None for no decay.
        chunk: C.

    Returns:
        (B, H, T, M) and (B, H, D', M).

    Raises:
        ValueError: a ``log_decay`` of another shape, or one that requires a gradient.
    """
    if log_decay is None:
        backend = choose_backend(q.device, torch.promote_types(q.dtype, v.dtype))
        if backend == "triton":
            from fairseq_plugins.kernels import triton_linear  # triton is optional

            return triton_linear.causal_product(q, k, v, start)
        if backend == "naive":
            return naive_causal_product(q, k, v, start)
        if not goes_by_chunks(backend, q.device):
            return _all_chunks(q, k, v, start, None, chunk)
        # Two tensors, since Dynamo cannot trace an argument twice.
        nothing = (start.new_empty(*start.shape[:2], 0) for _ in range(2))
        state = LinearState(start, *nothing)
        output, state = attend_by_chunks(
            q, k, v, state, min_cosine=None, chunk=chunk, backend=backend
        )
        return output, state.kv
    _check_decay(log_decay, q)
    if takes_all_chunks(q.device):
        return _all_chunks(q, k, v, start, log_decay, chunk)
    return _by_segments(q, k, v, start, log_decay, chunk)


def _check_decay(log_decay: Tensor, q: Tensor) -> None:
    batch, heads, length, _ = q.shape
    if log_decay.shape not in ((1, heads, length), (batch, heads, length)):
        raise ValueError(
            f"`log_decay` must be (B or 1, H, T), here ({batch} or 1, {heads}, {length}), "
            f"but is {tuple(log_decay.shape)} instead."
        )
    if log_decay.requires_grad:
        raise ValueError(
            "`log_decay` must not require a gradient: decays are fixed, and none is computed."
        )


class _Factors(NamedTuple):
    """Decay factors of one chunk, at most 1."""

    since_start: Tensor  # (B or 1, H, C, 1), from the start of the chunk to each query
    between: Tensor  # (B or 1, H, C, C), from each key to each query; 0 for later keys
    until_end: Tensor  # (B or 1, H, C, 1), from each key to the end of the chunk


def _factors(log_decay: Tensor, dtype: torch.dtype) -> _Factors:
    """Compute the factors from the log decays (B or 1, H, C) of a chunk's tokens.

    Exponents are sums over the tokens between key and query, so none is positive. They are
    differences of running sums, in float64 since a strong decay would drown later weak ones.
    """
    sums = log_decay.double().cumsum(-1).unsqueeze(-1)
    later = torch.ones(sums.size(-2), sums.size(-2), dtype=torch.bool, device=sums.device).triu(1)
    between = (sums - sums.mT).masked_fill(later, float("-inf")).to(dtype).exp()
    since_start = sums.to(dtype).exp()
    return _Factors(since_start, between, between[..., -1:, :].mT)


def _all_chunks(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor, log_decay: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """Compute ``causal_product`` for all chunks at once, with a constant number of operations."""
    length = q.size(2)
    qc, kc, vc = (_split(x.to(start.dtype), chunk) for x in (q, k, v))
    inside = qc @ kc.mT
    start = start.unsqueeze(2)
    if log_decay is None:
        inside = inside.tril()
        states = torch.cat((start, kc.mT @ vc), 2).cumsum(2)
    else:
        decays = _split(log_decay.unsqueeze(-1).double(), chunk).squeeze(-1)
        factors = _factors(decays, start.dtype)
        inside = inside * factors.between
        qc, kc = qc * factors.since_start, kc * factors.until_end
        # The same recursion with chunks in place of tokens.
        wholes = F.pad(decays.sum(-1), (1, 0))
        between = _factors(wholes, start.dtype).between
        updates = torch.cat((start, kc.mT @ vc), 2)
        states = (between @ updates.flatten(3)).unflatten(3, updates.shape[3:])
    output = inside @ vc + qc @ states[:, :, :-1]
    return output.flatten(2, 3)[:, :, :length], states[:, :, -1]


def _split(x: Tensor, chunk: int) -> Tensor:
    """Split tokens into chunks, the last one padded: (B, H, T, D) -> (B, H, T / C, C, D)."""
    length = x.size(2)
    if not (torch.compiler.is_compiling() or is_traced()) and length % chunk == 0:
        return x.unflatten(2, (-1, chunk))
    count = length // chunk + 1  # Always with padding, so that a graph has no branch.
    return F.pad(x, (0, 0, 0, count * chunk - length)).unflatten(2, (count, chunk))


def running_sums(x: Tensor, start: Tensor, chunk: int) -> Tensor:
    """Add up the tokens before and at each one, from a start: (B, H, T, D) -> (B, H, T, D).

    Sums of chunks are added to those within a chunk: in one long sum rounding errors would grow.

    Args:
        x: (B, H, T, D), in the dtype of the sums.
        start: (B, H, D).
        chunk: C.
    """
    inside = _split(x, chunk).cumsum(3)
    before = torch.cat((start.unsqueeze(2), inside[:, :, :, -1]), 2).cumsum(2)[:, :, :-1]
    return (inside + before.unsqueeze(3)).flatten(2, 3)[:, :, : x.size(2)]


def _by_segments(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor, log_decay: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Compute ``_all_chunks`` for a few chunks at a time; backward computes them again."""
    run: Callable[..., tuple[Tensor, Tensor]] = _all_chunks
    tensors = (x.split(_SEGMENT * chunk, 2) for x in (q, k, v, log_decay))
    outputs, segments = [], [*zip(*tensors, strict=True)]
    if len(segments) > 1 and torch.is_grad_enabled():
        run = partial(checkpoint, _all_chunks, use_reentrant=False, preserve_rng_state=False)
    for *inputs, decays in segments:
        output, start = run(*inputs, start, decays, chunk)
        outputs.append(output)
    return torch.cat(outputs, 2), start
