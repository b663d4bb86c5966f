"""Linear attention: memory linear in the length, exact.

Shapes: B batch, H heads, T queries, S keys, D' features, M values, C chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels.normalizer import clamp_denominator, norms


class LinearState(NamedTuple):
    """What linear attention remembers of the keys so far, in float32 or wider.

    Attributes:
        kv: (B, H, D', M), the sum of k_t v_t^T.
        k_sum: (B, H, D), the sum of the denominator's keys.
        k_norm: (B, H, 1), the sum of their norms.
    """

    kv: Tensor
    k_sum: Tensor
    k_norm: Tensor


def causal_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer_q: Tensor | None = None,
    normalizer_k: Tensor | None = None,
    normalize: bool = True,
    min_cosine: float = 0.0,
    chunk_size: int = 64,
    initial_state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    """Query s attends to keys t <= s with weights q_s . k_t (LRPE, Eq. 31 and 39).

    Chunk by chunk: inside a chunk through its C x C weights, across chunks through the running
    sum of k_t v_t^T. Nothing of size T x T or T x D' x M is ever made, forward or backward.

    Args:
        q: (B, H, T, D'), features of the queries.
        k: (B, H, T, D'), features of the keys, zero where padded.
        v: (B, H, T, M).
        normalizer_q: (B, H, T, D), the denominator's queries; ``q`` where None.
        normalizer_k: (B, H, T, D), the denominator's keys; ``k`` where None.
        normalize: divide by the denominator, normalizer_q_s . (sum of normalizer_k_t).
        min_cosine: keep the denominator's size at or above this share of its bound
            |normalizer_q_s| (sum of |normalizer_k_t|), with its sign. Encoded features are not
            positive, so that a denominator can come near zero; this bounds the weights.
        chunk_size: C, at least 1.
        initial_state: of the keys before the first.
        return_state: also return the state after the last key.

    Returns:
        (B, H, T, M) in the dtype of ``v``, with the state where asked for.

    Raises:
        ValueError: for shapes that do not go together, or a chunk size below 1.
    """
    _check(q, k, v, normalizer_q, normalizer_k)
    if q.size(2) != k.size(2):
        raise ValueError(
            f"`q` and `k` must have one length, but have {q.size(2)} and {k.size(2)} instead."
        )
    if chunk_size < 1:
        raise ValueError(f"`chunk_size` must be at least 1, but is {chunk_size} instead.")
    wide = torch.promote_types(v.dtype, torch.float32)
    start = initial_state.kv if initial_state else _zeros(q, (q.size(-1), v.size(-1)), wide)
    output, kv = _CausalProduct.apply(q, k, v, start, chunk_size)
    norm_q = q if normalizer_q is None else normalizer_q
    norm_k = k if normalizer_k is None else normalizer_k
    sums, sizes = norm_k.to(wide).cumsum(2), norms(norm_k, wide).cumsum(2)
    if initial_state:
        sums = sums + initial_state.k_sum.unsqueeze(2)
        sizes = sizes + initial_state.k_norm.unsqueeze(2)
    if normalize:
        denominator = torch.einsum("bhtd,bhtd->bht", norm_q.to(wide), sums).unsqueeze(-1)
        output = _divide(output, denominator, norm_q, sizes, min_cosine)
    output = output.to(v.dtype)
    if not return_state:
        return output
    return output, LinearState(kv, sums[:, :, -1], sizes[:, :, -1])


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer_q: Tensor | None = None,
    normalizer_k: Tensor | None = None,
    normalize: bool = True,
    min_cosine: float = 0.0,
) -> Tensor:
    """Every query attends to every key with weights q_s . k_t (LRPE, Eq. 31 and 39).

    Args:
        q: (B, H, T, D'), features of the queries.
        k: (B, H, S, D'), features of the keys, zero where padded.
        v: (B, H, S, M).
        normalizer_q: (B, H, T, D), the denominator's queries; ``q`` where None.
        normalizer_k: (B, H, S, D), the denominator's keys; ``k`` where None.
        normalize: divide by the denominator.
        min_cosine: see ``causal_linear_attention``.

    Returns:
        (B, H, T, M) in the dtype of ``v``.

    Raises:
        ValueError: for shapes that do not go together.
    """
    _check(q, k, v, normalizer_q, normalizer_k)
    state = remember_keys(k, v, normalizer_k=normalizer_k)
    return attend_state(
        q, state, normalizer_q=normalizer_q, normalize=normalize, min_cosine=min_cosine
    ).to(v.dtype)


def remember_keys(k: Tensor, v: Tensor, *, normalizer_k: Tensor | None = None) -> LinearState:
    """The state of keys (B, H, S, D') and values (B, H, S, M); see ``linear_attention``."""
    norm_k = k if normalizer_k is None else normalizer_k
    wide = torch.promote_types(v.dtype, torch.float32)
    return LinearState(
        k.to(wide).mT @ v.to(wide), norm_k.sum(2, dtype=wide), norms(norm_k, wide).sum(2)
    )


def attend_state(
    q: Tensor,
    state: LinearState,
    *,
    normalizer_q: Tensor | None = None,
    normalize: bool = True,
    min_cosine: float = 0.0,
) -> Tensor:
    """Queries against a state: (B, H, T, D') -> (B, H, T, M) in the state's dtype."""
    output = q.to(state.kv.dtype) @ state.kv
    if not normalize:
        return output
    norm_q = q if normalizer_q is None else normalizer_q
    wide = state.k_sum.dtype
    denominator = norm_q.to(wide) @ state.k_sum.unsqueeze(-1)
    return _divide(output, denominator, norm_q, state.k_norm.unsqueeze(2), min_cosine)


def _divide(
    output: Tensor, denominator: Tensor, norm_q: Tensor, sizes: Tensor, min_cosine: float
) -> Tensor:
    """``output`` over a denominator kept at ``min_cosine`` of its bound |norm_q| ``sizes``."""
    if not min_cosine:
        return output / clamp_denominator(denominator)
    return output / clamp_denominator(denominator, min_cosine * norms(norm_q, sizes.dtype) * sizes)


def _check(
    q: Tensor, k: Tensor, v: Tensor, normalizer_q: Tensor | None, normalizer_k: Tensor | None
) -> None:
    if q.shape[:2] != k.shape[:2] or q.size(-1) != k.size(-1):
        raise ValueError(
            "`q` (B, H, T, D') and `k` (B, H, S, D') must share B, H and D', "
            f"but are {tuple(q.shape)} and {tuple(k.shape)} instead."
        )
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            "`k` (B, H, S, D') and `v` (B, H, S, M) must share B, H and S, "
            f"but are {tuple(k.shape)} and {tuple(v.shape)} instead."
        )
    if (normalizer_q is None) != (normalizer_k is None):
        raise ValueError("`normalizer_q` and `normalizer_k` must be given together.")


def _zeros(like: Tensor, tail: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.zeros(*like.shape[:2], *tail, dtype=dtype, device=like.device)


class _CausalProduct(torch.autograd.Function):
    """out_s = q_s (kv_0 + sum_{t <= s} k_t v_t^T) and kv after the last key, in wide dtype.

    Saves its inputs only; the states at the chunks' borders are computed anew in backward.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, q: Tensor, k: Tensor, v: Tensor, start: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(q, k, v, start)
        ctx.chunk = chunk
        kv = start.clone()
        output = torch.empty(v.shape, dtype=start.dtype, device=v.device)
        for rows in _chunks(q.size(2), chunk):
            qc, kc, vc = (t[:, :, rows].to(start.dtype) for t in (q, k, v))
            output[:, :, rows] = qc @ kv + (qc @ kc.mT).tril_() @ vc
            kv += kc.mT @ vc
        return output, kv

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad_output: Tensor, grad_kv: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, start = ctx.saved_tensors
        wide = start.dtype
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        kv = start.clone()
        for rows in _chunks(q.size(2), ctx.chunk):
            kc, vc, gc = (t[:, :, rows].to(wide) for t in (k, v, grad_output))
            grad_q[:, :, rows] = gc @ kv.mT + (gc @ vc.mT).tril_() @ kc
            kv += kc.mT @ vc
        # From the last chunk to the first: the gradient of the state that each key enters.
        later = grad_kv.to(wide).clone()
        for rows in reversed(_chunks(q.size(2), ctx.chunk)):
            qc, kc, vc, gc = (t[:, :, rows].to(wide) for t in (q, k, v, grad_output))
            grad_v[:, :, rows] = kc @ later + (kc @ qc.mT).triu_() @ gc
            grad_k[:, :, rows] = vc @ later.mT + (vc @ gc.mT).triu_() @ qc
            later += qc.mT @ gc
        return grad_q, grad_k, grad_v, later, None


def _chunks(length: int, chunk: int) -> list[slice]:
    return [slice(i, min(i + chunk, length)) for i in range(0, length, chunk)]
