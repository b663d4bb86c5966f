"""Conversion and checks of padding and attention masks."""

import torch
from torch import Tensor

from fairseq_plugins.attention.base import Attention
from fairseq_plugins.attention.call import Call


def padding_mask(
    mask: Tensor | None, key: Tensor, attention: Attention
) -> tuple[Tensor | None, Tensor | None]:
    """Split a padding mask into a bool mask (B, S) and values added to the logits, or None.

    Args:
        mask: (B, S), bool or floating point.
        key: (B, S, C).
        attention: the attention that gets the masks.

    Raises:
        ValueError: another type or shape, or finite values for an attention without logits.
        RuntimeError: the latter in a compiled graph.
    """
    if mask is None:
        return None, None
    if mask.dim() != 2 or mask.shape != key.shape[:2]:
        raise ValueError(
            f"`key_padding_mask` must be {tuple(key.shape[:2])}, a value for each key, but is "
            f"{tuple(mask.shape)} instead."
        )
    if mask.dtype == torch.bool:
        return mask, None
    if not mask.is_floating_point():
        raise ValueError(
            "`key_padding_mask` must be bool, True where padded, or floating point, -inf where "
            f"padded, but is {mask.dtype} instead; a mask with ones at real tokens is converted by "
            "`mask == 0`."
        )
    padded = mask == float("-inf")
    rest = mask.masked_fill(padded, 0.0)
    refusal = (
        f"`key_padding_mask` must be 0 or -inf for {attention.name} attention, which has no logits "
        "to add other values to."
    )
    if torch.compiler.is_compiling():
        if attention.gives_weights:
            return padded, rest
        torch._assert_async((rest == 0).all(), refusal)
        return padded, None
    if not bool(rest.any()):
        return padded, None
    if not attention.gives_weights:
        raise ValueError(refusal)
    return padded, rest


def attention_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Reshape an attention mask so that batch and heads are separate dimensions.

    Args:
        mask: (T, S), (B, T, S), (B H, T, S) or (B, H, T, S).
        q: (B, H, T, D).
        k: (B, H, S, D).

    Raises:
        ValueError: integers, or another shape.
    """
    if mask is None:
        return None
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            "`attn_mask` must be bool, True where hidden, or floating point and added to the "
            f"logits, but is {mask.dtype} instead."
        )
    if mask.dim() != 3 and torch.compiler.is_compiling():
        return mask  # Comparing sizes would fix them in the graph.
    batch, heads, queries, keys = q.size(0), q.size(1), q.size(2), k.size(2)
    shape = tuple(mask.shape)
    if shape == (batch * heads, queries, keys) and heads > 1:
        return mask.view(batch, heads, queries, keys)
    leading = shape[:-2]
    allowed = ((), (batch,), (1,), (batch, heads), (1, heads), (batch, 1), (1, 1))
    if len(shape) < 2 or shape[-2:] != (queries, keys) or leading not in allowed:
        raise ValueError(
            f"`attn_mask` must be ({queries}, {keys}), with the batch of {batch}, or that and "
            f"{heads} heads, before them, but is {shape} instead."
        )
    return mask


def to_added(mask: Tensor | None, added: Tensor | None, queries: int) -> Tensor | None:
    """Combine an attention mask with the floating-point values of a padding mask.

    Args:
        mask: (T, S), (B, T, S) or (B, H, T, S), bool or added to the logits.
        added: (B, S), or None.
        queries: T.
    """
    if added is None:
        return mask
    rows = added[:, None, None, :].expand(-1, 1, queries, -1)
    if mask is None:
        return rows
    if mask.dtype == torch.bool:
        mask = rows.new_zeros(()).where(~mask, float("-inf"))
    return rows + (mask.unsqueeze(1) if mask.dim() == 3 else mask)


def check_packed(query: Tensor, is_self: bool, **others: Tensor | None) -> None:
    """Check that the other arguments of a call allow packed documents.

    Args:
        query: (B, T, C).
        is_self: whether this is self-attention.
        others: masks and positions by name, which must be None.

    Raises:
        ValueError: several rows, cross-attention, masks or positions.
    """
    if query.size(0) != 1:
        raise ValueError(
            "`cu_seqlens` needs one packed row, (1, tokens, features), but `query` is "
            f"{tuple(query.shape)} instead."
        )
    if not is_self:
        raise ValueError("`cu_seqlens` needs self-attention: `key` must be `query`.")
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"`{name}` must be None with `cu_seqlens`.")


def split_mask(call: Call, added: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Combine padding and masks: bool, True where hidden, and floats to add to the logits."""
    padded, attn_mask = call.state.get("key_padding_mask"), call.attn_mask
    padded = None if padded is None else padded[:, None, None, :]
    if attn_mask is None:
        return padded, added
    if attn_mask.dim() == 3:
        attn_mask = attn_mask.unsqueeze(1)
    if attn_mask.dtype == torch.bool:
        return _either(attn_mask, padded), added
    hidden = attn_mask.eq(float("-inf"))
    # Finite, so that `hidden_pairs` alone handles rows in which everything is hidden.
    attn_mask = attn_mask.masked_fill(hidden, 0.0)
    return _either(hidden, padded), plus(added, attn_mask)


def plus(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Add two terms, of which None stands for zero."""
    return second if first is None else first if second is None else first + second


def _either(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first if second is None else first | second


def hidden_pairs(
    hidden: Tensor | None, causal: bool, queries: int, keys: int, device: torch.device
) -> Tensor | None:
    """Combine the causal mask and ``hidden``, bool, True where hidden.

    A query that would see no key sees all keys instead, since a softmax over nothing is NaN and
    would spread. Its output is unused (left padding in a causal model) or set to zero.
    """
    if causal:
        hidden = _either(hidden, _future(queries, keys, device))
    return None if hidden is None else hidden & ~hidden.all(-1, keepdim=True)


def zero_masked(output: Tensor, weights: Tensor | None, call: Call) -> tuple[Tensor, Tensor | None]:
    """Set outputs and weights of queries that see no key to zero, except in a causal padding.

    Args:
        output: (B, H, T, D).
        weights: (B, H, T, S), or None.
        call: with its masks.
    """
    hidden, _ = split_mask(call, None)
    if hidden is None or (call.causal and call.attn_mask is None):
        return output, weights
    if call.causal:
        queries, keys = hidden.shape[-2:]
        hidden = hidden | _future(queries, keys, hidden.device)
    blind = hidden.all(-1, keepdim=True)
    weights = None if weights is None else weights.masked_fill(blind, 0.0)
    return output.masked_fill(blind, 0.0), weights


def _future(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return the causal mask (T, S) of the last T tokens."""
    future = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return future.triu(1 + keys - queries)


def sdpa_mask(hidden: Tensor | None, added: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Merge masks for scaled_dot_product_attention: bool, True where visible, or added floats."""
    if added is None:
        return None if hidden is None else ~hidden
    if hidden is not None:
        added = added.masked_fill(hidden, float("-inf"))
    if added.dtype != dtype and dtype in (torch.float16, torch.bfloat16) and added.size(-1):
        # Softmax ignores a constant per row, but half precision is most exact near 0.
        added = added - added.detach().amax(-1, keepdim=True)
    return added.to(dtype)


def added_mask(mask: Tensor | None, is_causal: bool, q: Tensor, keys: int) -> Tensor | None:
    """Turn the arguments of scaled_dot_product_attention into values to add to the logits.

    Args:
        mask: bool, True where visible, or added floats; None for neither.
        is_causal: whether ``mask`` is None for the causal mask.
        q: (B, H, T, D).
        keys: S.
    """
    if mask is None and is_causal:
        future = hidden_pairs(None, True, q.size(2), keys, q.device)
        return sdpa_mask(future, q.new_zeros(()), q.dtype)
    if mask is not None and mask.dtype == torch.bool:
        return q.new_zeros(()).where(mask, float("-inf"))
    return mask
