"""Checks of the arguments of `PositionalMultiheadAttention`; each raises ValueError."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fairseq_plugins.attention.positions import check_positions


def check_optional_positions(name: str, positions: Tensor | None, x: Tensor) -> None:
    """Check positions under the layer's argument name, which differs from the attention's."""
    if positions is not None:
        check_positions(name, positions, x.size(0), x.size(1))


def check_sizes(embed_dim: int, num_heads: int, num_kv_heads: int) -> None:
    """Check the widths and numbers of heads."""
    sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"`{name}` must be a positive integer, but is {size!r} instead.")
    if embed_dim % num_heads:
        raise ValueError(
            f"`embed_dim` must be a multiple of num_heads={num_heads}, but is {embed_dim} instead."
        )
    if num_heads % num_kv_heads:
        raise ValueError(
            f"`num_kv_heads` must divide num_heads={num_heads}, but is {num_kv_heads} instead."
        )


def check_flags(add_bias_kv: bool, add_zero_attn: bool, batch_first: bool) -> None:
    """Check options of PyTorch's module that must have one value."""
    for name, flag in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
        if flag:
            raise ValueError(f"`{name}` must be False: a key without a token has no position.")
    if not batch_first:
        raise ValueError("`batch_first` must be True: inputs are (B, T, C).")


def check_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    *,
    is_causal: bool,
    causal: bool,
) -> None:
    """Check shapes, and the hint `is_causal` against the layer's `causal`."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 3 or x.size(0) != query.size(0):
            raise ValueError(
                f"`{name}` must be ({query.size(0)}, length, features), batch first as "
                f"`query`, but is {tuple(x.shape)} instead."
            )
    if value.size(1) != key.size(1):
        raise ValueError(
            f"`value` must have the {key.size(1)} tokens of `key`, but has {value.size(1)} instead."
        )
    if is_causal and not causal and attn_mask is None:
        raise ValueError(
            "`is_causal` must be False for a layer built with causal=False, unless `attn_mask` "
            "is the causal mask; build the layer with causal=True instead."
        )
    if causal and key.size(1) != query.size(1):
        raise ValueError(
            f"`key` must have the {query.size(1)} tokens of `query` in a causal layer, but "
            f"has {key.size(1)}; `step` continues from earlier tokens."
        )


def check_query_positions(positions: Tensor | None) -> None:
    """Check that positions of queries are given, for padded keys of another sequence."""
    # An error at any length; otherwise calls would fail only when lengths happen to differ.
    if positions is None:
        raise ValueError(
            "`query_positions` must be given with `key_padding_mask` if `key` is another tensor "
            "than `query`, since the mask does not tell which queries are padded, but is None "
            "instead; for self-attention pass one tensor as both, or positions from "
            "`make_positions`."
        )


def with_dropout(attention: str, dropout: float, options: Mapping[str, Any]) -> dict[str, Any]:
    """Add the layer's `dropout` to the options of its attention."""
    if attention != "vanilla":
        if dropout:
            raise ValueError(
                f"`dropout` must be 0 under {attention} attention, which has no weights to drop, "
                f"but is {dropout} instead."
            )
        return dict(options)
    if dropout and "dropout" in options:
        raise ValueError(
            "`dropout` must be 0 beside that of `attention_options`, which is "
            f"{options['dropout']}, but is {dropout} instead."
        )
    return {"dropout": dropout, **options}
