"""Linear attention: memory linear in the length, exact.

Shapes: B batch, H heads, T queries, S keys, D' features, M values, C chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fairseq_plugins.kernels import native
from fairseq_plugins.kernels.backend import (
    Backend,
    choose_backend,
    goes_by_chunks,
    is_transformed,
    needs_plain_operations,
)
from fairseq_plugins.kernels.bidirectional import bidirectional_attention
from fairseq_plugins.kernels.chunked import LinearState
from fairseq_plugins.kernels.graph_operator import attend_by_chunks
from fairseq_plugins.kernels.normalizer import clamp_denominator, norms
from fairseq_plugins.kernels.precision import wide_type, without_autocast
from fairseq_plugins.kernels.products import causal_product, running_sums


@without_autocast
def causal_linear_attention(
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
    chunk_size: int = 64,
    initial_state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    """Attend from query s to keys t <= s with weights q_s . k_t (LRPE, Eq. 31 and 39).

    Within a chunk it uses the C x C weights, across chunks the running sum of k_t v_t^T, without
    tensors of size T x T or T x D' x M, forward or backward.

    Args:
        q: (B, H, T, D'), features of the queries.
        k: (B, H, T, D'), features of the keys, zero where padded.
        v: (B, H, T, M).
        normalizer_q: (B, H, T, D), the denominator's queries; ``q`` where None.
        normalizer_k: (B, H, T, D), the denominator's keys; ``k`` where None.
        normalize: divide by the denominator, normalizer_q_s . (sum of normalizer_k_t).
        min_cosine: lower bound on the absolute denominator, as a share of its maximum
            |normalizer_q_s| (sum of |normalizer_k_t|); the sign is kept. It bounds the weights,
            since denominators of encoded features can come near zero.
        epsilon: divide by max(denominator, epsilon) instead, so that negative denominators become
            epsilon; ``min_cosine`` must then be 0.
        log_decay: (B or 1, H, T) float32, finite and not positive: the logarithm of the factor on
            the weights of all earlier keys at token t. The weight of key t for query s is
            q_s . k_t exp(sum of log_decay over t + 1..s). The denominator decays likewise unless
            ``normalizer_q`` is given. Only exponentials of such sums are computed, so nothing
            overflows at any length. It has no gradient.
        chunk_size: C, at least 1.
        initial_state: the state of earlier keys.
        return_state: also return the state after the last key.

    Returns:
        (B, H, T, M) in the dtype of ``v``, or without a denominator in the wider dtype of the
        sums; with ``return_state``, also the state.

    Raises:
        ValueError: shapes that do not fit, also of ``initial_state``, whose dtype and device must
            be those of these sums, a chunk size below 1, a
            ``log_decay`` that requires a gradient, or both ``epsilon`` and ``min_cosine``.
    """
    _check(q, k, v, normalizer_q, normalizer_k, epsilon, min_cosine)
    if q.size(2) != k.size(2):
        raise ValueError(
            f"`q` and `k` must have one length, but have {q.size(2)} and {k.size(2)} instead."
        )
    if chunk_size < 1:
        raise ValueError(f"`chunk_size` must be at least 1, but is {chunk_size} instead.")
    norm_k = k if normalizer_k is None else normalizer_k
    if initial_state is not None:
        _check_state(initial_state, k, v, norm_k)
    if not q.size(2):
        state = initial_state or _empty_state(k, v, norm_k)
        output = (q @ k.mT).to(v.dtype) @ v  # empty, but connected to the graph of gradients
        output = output.to(v.dtype if normalize else state.kv.dtype)
        return (output, state) if return_state else output
    dtype = torch.promote_types(q.dtype, v.dtype)
    if initial_state is not None:
        dtype = torch.promote_types(dtype, initial_state.kv.dtype)
    backend = choose_backend(q.device, dtype)
    clamp: dict[str, Any] = {"min_cosine": min_cosine, "epsilon": epsilon}
    divides = normalize and log_decay is None
    is_fused = divides and normalizer_k is None  # with the denominator in the same pass
    needs_state = initial_state is not None or return_state
    # The first way whose condition holds; the last one supports every call.
    if backend == "triton" and divides and not (needs_state or _is_step(q, log_decay)):
        from fairseq_plugins.kernels import triton_linear  # triton is optional

        divided = triton_linear.causal_attention(
            q, k, v, normalizer_q, normalizer_k, min_cosine, epsilon
        )
        if divided is not None:
            return divided
    start = initial_state or _empty_state(k, v, norm_k)
    if is_fused and _runs_natively(backend, q, k, v, *start):
        output, _, _, *sums = native.attend(q, k, v, *start, min_cosine, epsilon)
        state = LinearState(*sums)
    elif _is_step(q, log_decay):
        state = _next_state(k, v, norm_k, start)
        output = attend_state(q, state, normalizer_q=normalizer_q, normalize=normalize, **clamp)
    elif is_fused and goes_by_chunks(backend, q.device):
        output, state = attend_by_chunks(
            q, k, v, start, chunk=chunk_size, backend=backend, needs_state=needs_state, **clamp
        )
    else:
        output, kv = causal_product(q, k, v, start.kv, log_decay, chunk_size)
        state = start
        if normalize or return_state:
            norm_q = q if normalizer_q is None else normalizer_q
            decay = log_decay if normalizer_k is None else None
            needs_norms = bool(min_cosine) or return_state
            denominator, sizes, *last = _denominators(
                norm_q, norm_k, start, decay, chunk_size, backend, needs_norms
            )
            state = LinearState(kv, *last)
        if normalize:
            output = _divide(output, denominator, norm_q, sizes, **clamp)
    output = output.to(v.dtype) if normalize else output
    return (output, state) if return_state else output


def _is_step(q: Tensor, log_decay: Tensor | None) -> bool:
    """Return whether this is a step of decoding, for which sums need no chunks."""
    return q.size(2) == 1 and log_decay is None and not needs_plain_operations()


def _denominators(
    norm_q: Tensor,
    norm_k: Tensor,
    start: LinearState,
    log_decay: Tensor | None,
    chunk: int,
    backend: Backend,
    needs_norms: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sums of weights and of norms (B, H, T, 1), ``k_sum`` and ``k_norm`` of the last key.

    Unless ``needs_norms``, norms are those of ``start``.
    """
    wide, k_norm = start.kv.dtype, start.k_norm
    is_at_once = backend in ("torch", "native") and not goes_by_chunks(backend, norm_k.device)
    if log_decay is None and is_at_once:  # sums of keys take fewer launches than products
        keys, before = norm_k.to(wide), start.k_sum
        if needs_norms:
            keys = torch.cat((keys, norms(norm_k, wide)), -1)
            before = torch.cat((before, k_norm), -1)
        sums = running_sums(keys, before, chunk)
        k_sums = sums[..., : norm_k.size(-1)]
        sizes = sums[..., -1:] if needs_norms else k_norm.unsqueeze(-1)
        denominator = (norm_q.to(wide) * k_sums).sum(-1, keepdim=True)
        return denominator, sizes, k_sums[:, :, -1], sizes[:, :, -1]
    ones = norm_k.new_ones(*norm_k.shape[:3], 1)
    k_sum, sizes = start.k_sum.unsqueeze(-1), k_norm.unsqueeze(-1)
    denominator, k_sum = causal_product(norm_q, norm_k, ones, k_sum, log_decay, chunk)
    last = sizes
    if needs_norms:
        others = torch.ones_like(ones)  # Two tensors, since Dynamo cannot trace an argument twice.
        key_norms = norms(norm_k, wide)
        sizes, last = causal_product(others, key_norms, ones, sizes, log_decay, chunk)
    return denominator, sizes, k_sum.squeeze(-1), last.squeeze(-1)


def _empty_state(k: Tensor, v: Tensor, norm_k: Tensor) -> LinearState:
    """Return the state before the first key."""
    wide = wide_type(v)
    return LinearState(*(k.new_zeros(shape, dtype=wide) for shape in _state_shapes(k, v, norm_k)))


def _state_shapes(k: Tensor, v: Tensor, norm_k: Tensor) -> list[tuple[int, ...]]:
    """Return the shapes of ``kv``, ``k_sum`` and ``k_norm``."""
    tails = ((k.size(-1), v.size(-1)), (norm_k.size(-1),), (1,))
    return [(*k.shape[:2], *tail) for tail in tails]


def _check_state(state: LinearState, k: Tensor, v: Tensor, norm_k: Tensor) -> None:
    """Check a state, since the compiled library reads and writes it by its address."""
    wide = wide_type(state.kv)
    shapes = zip(LinearState._fields, state, _state_shapes(k, v, norm_k), strict=True)
    for name, tensor, shape in shapes:
        if tensor.shape != shape:
            raise ValueError(
                f"`initial_state.{name}` must be {tuple(shape)} for these keys and values, but is "
                f"{tuple(tensor.shape)} instead."
            )
        if (tensor.dtype, tensor.device) != (wide, k.device):
            raise ValueError(
                f"`initial_state.{name}` must be {wide} on {k.device}, as all sums of these keys, "
                f"but is {tensor.dtype} on {tensor.device} instead."
            )


def _runs_natively(backend: Backend, *inputs: Tensor) -> bool:
    """Return whether the compiled library takes q, k, v and a state directly, without gradients.

    A step in plain operations takes two to three times as long.
    """
    # In forward mode the library would lose the tangents, and Dynamo cannot trace it.
    if backend != "native" or forward_ad._current_level >= 0 or torch.compiler.is_compiling():
        return False
    has_gradients = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return not has_gradients and native.fits(*inputs[:3])


def _next_state(k: Tensor, v: Tensor, norm_k: Tensor, start: LinearState) -> LinearState:
    """Return the state after one key, for a step of decoding."""
    wide = start.kv.dtype
    kv = torch.addcmul(start.kv, k.mT.to(wide), v.to(wide))
    return LinearState(
        kv, start.k_sum + norm_k[:, :, 0], start.k_norm + norms(norm_k, wide)[..., 0]
    )


@without_autocast
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer_q: Tensor | None = None,
    normalizer_k: Tensor | None = None,
    normalize: bool = True,
    min_cosine: float = 0.0,
    epsilon: float | None = None,
) -> Tensor:
    """Attend from every query to every key with weights q_s . k_t (LRPE, Eq. 31 and 39).

    With the denominator of ``q`` and ``k`` it has first derivatives only.

    Args:
        q: (B, H, T, D'), features of the queries.
        k: (B, H, S, D'), features of the keys, zero where padded.
        v: (B, H, S, M).
        normalizer_q: (B, H, T, D), the denominator's queries; ``q`` where None.
        normalizer_k: (B, H, S, D), the denominator's keys; ``k`` where None.
        normalize: divide by the denominator.
        min_cosine: see ``causal_linear_attention``.
        epsilon: see ``causal_linear_attention``.

    Returns:
        (B, H, T, M) in the dtype of ``v``, or without a denominator in that of the sums.

    Raises:
        ValueError: shapes that do not fit, or both ``epsilon`` and ``min_cosine``.
    """
    _check(q, k, v, normalizer_q, normalizer_k, epsilon, min_cosine)
    if normalize and normalizer_k is None and not is_transformed():
        return bidirectional_attention(q, k, v, min_cosine=min_cosine, epsilon=epsilon)
    state = remember_keys(k, v, normalizer_k=normalizer_k)
    output = attend_state(
        q,
        state,
        normalizer_q=normalizer_q,
        normalize=normalize,
        min_cosine=min_cosine,
        epsilon=epsilon,
    )
    return output.to(v.dtype) if normalize else output


@without_autocast
def remember_keys(k: Tensor, v: Tensor, *, normalizer_k: Tensor | None = None) -> LinearState:
    """Return the state of keys (B, H, S, D') and values (B, H, S, M)."""
    norm_k = k if normalizer_k is None else normalizer_k
    wide = wide_type(v)
    return LinearState(
        k.to(wide).mT @ v.to(wide), norm_k.sum(2, dtype=wide), norms(norm_k, wide).sum(2)
    )


@without_autocast
def attend_state(
    q: Tensor,
    state: LinearState,
    *,
    normalizer_q: Tensor | None = None,
    normalize: bool = True,
    min_cosine: float = 0.0,
    epsilon: float | None = None,
) -> Tensor:
    """Attend from queries to a state: (B, H, T, D') -> (B, H, T, M) in the state's dtype."""
    output = q.to(state.kv.dtype) @ state.kv
    if not normalize:
        return output
    norm_q = q if normalizer_q is None else normalizer_q
    wide = state.k_sum.dtype
    denominator = norm_q.to(wide) @ state.k_sum.unsqueeze(-1)
    return _divide(output, denominator, norm_q, state.k_norm.unsqueeze(2), min_cosine, epsilon)


def _divide(
    output: Tensor,
    denominator: Tensor,
    norm_q: Tensor,
    sizes: Tensor,
    min_cosine: float,
    epsilon: float | None,
) -> Tensor:
    """Divide by the denominator, clamped to ``min_cosine`` of its maximum |norm_q| ``sizes``."""
    floor = min_cosine * norms(norm_q, sizes.dtype) * sizes if min_cosine else None
    return output / clamp_denominator(denominator, floor, epsilon)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    normalizer_q: Tensor | None,
    normalizer_k: Tensor | None,
    epsilon: float | None,
    min_cosine: float,
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
    if epsilon is not None and min_cosine:
        raise ValueError(f"`min_cosine` must be 0 with epsilon={epsilon}, but is {min_cosine}.")
