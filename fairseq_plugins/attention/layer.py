"""Multi-head attention as a layer of plain PyTorch, with a position encoding by its name.

Shapes: B batch, H heads, G heads of keys, T queries, S keys, D head_dim, C embed_dim.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.attention.base import State
from fairseq_plugins.attention.compatibility import build_attention
from fairseq_plugins.attention.documents import Documents, attend_documents
from fairseq_plugins.attention.layer_checks import (
    check_call,
    check_flags,
    check_optional_positions,
    check_query_positions,
    check_sizes,
    with_dropout,
)
from fairseq_plugins.attention.masks import (
    attention_mask,
    check_packed,
    padding_mask,
    to_added,
)
from fairseq_plugins.attention.positions import (
    check_padding_mask,
    count_positions,
    make_positions,
)
from fairseq_plugins.attention.torch_state import split_projections
from fairseq_plugins.encodings import IncompatibleEncodingError, build_encoding
from fairseq_plugins.encodings.base import Projection

_NEXT = "next_position"  # (B, 1) int64 in a layer's state: number of tokens so far, without padding


@dataclass(frozen=True)
class GroupedKeys:
    """Key projection whose heads are repeated for each query head: (..., C) -> (..., H D)."""

    linear: nn.Module  # C -> G D
    groups: int  # H / G
    head_dim: int  # D
    in_features: int  # C

    def __call__(self, x: Tensor) -> Tensor:
        """Project and repeat: (..., C) -> (..., H D)."""
        heads = self.linear(x).unflatten(-1, (-1, self.head_dim))
        repeated: Tensor = heads.repeat_interleave(self.groups, -2).flatten(-2)
        return repeated


class PositionalMultiheadAttention(nn.Module):
    """Drop-in replacement for ``nn.MultiheadAttention`` (batch first) with a position encoding.

    It has the interface of PyTorch's module and loads its state dicts. Positions count from 0 in
    each sequence and skip padding on either side.

    Args:
        embed_dim: C.
        num_heads: H, of queries.
        dropout: of the weights, vanilla attention only; here or in ``attention_options``.
        bias: whether the four projections have biases.
        add_bias_kv: must be False, since the added key would have no position.
        add_zero_attn: must be False.
        kdim: features of keys; C by default.
        vdim: features of values; C by default.
        batch_first: must be True.
        device: of the parameters.
        dtype: of the parameters.
        position_encoding: a name of ``ENCODINGS``, or several joined by ``+``.
        attention: ``vanilla`` or ``linear``.
        causal: whether query s sees only keys t <= s.
        num_kv_heads: G, each shared by H / G heads of queries; H by default.
        max_positions: length of the longest sequence; tables that can grow do so beyond it.
        attention_options: options of the attention, such as ``feature_map`` of linear attention.
        generator: source of fixed random parameters; torch's global one if None.
        options: options of the encoding.

    Raises:
        ValueError: an unknown name or option, or a bad value.
        IncompatibleEncodingError: the attention or the direction does not support the encoding, or
            the encoding acts on the input of a model instead of inside an attention.
    """

    # nn.TransformerEncoderLayer checks these before it takes its fused path.
    batch_first = True
    in_proj_weight = None
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        position_encoding: str = "none",
        attention: str = "vanilla",
        causal: bool = False,
        num_kv_heads: int | None = None,
        max_positions: int = 1024,
        attention_options: Mapping[str, Any] | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_sizes(embed_dim, num_heads, num_kv_heads)
        check_flags(add_bias_kv, add_zero_attn, batch_first)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim, self.groups = embed_dim // num_heads, num_heads // num_kv_heads
        encoding = build_encoding(
            position_encoding,
            num_heads=num_heads,
            head_dim=self.head_dim,
            embed_dim=embed_dim,
            max_positions=max_positions,
            causal=causal,
            generator=generator,
            **options,
        )
        for part in encoding.parts_with("embed"):
            raise IncompatibleEncodingError(
                f"a layer cannot use the encoding {part.label!r}: its hook `embed` acts on the "
                "input of a model; call that of build_encoding before the first layer."
            )
        self.attention = build_attention(
            attention,
            encoding,
            num_heads=num_heads,
            head_dim=self.head_dim,
            causal=causal,
            **with_dropout(attention, dropout, attention_options or {}),
        )
        widths: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        kv_dim = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, embed_dim, **widths)
        self.k_proj = nn.Linear(kdim or embed_dim, kv_dim, **widths)
        self.v_proj = nn.Linear(vdim or embed_dim, kv_dim, **widths)
        self.out_proj = nn.Linear(embed_dim, embed_dim, **widths)
        self.kdim = kdim or embed_dim
        self._bind_projections()
        self.attention.to(device=device, dtype=dtype)
        self.register_load_state_dict_pre_hook(split_projections)
        self.reset_parameters()

    def _bind_projections(self) -> None:
        if not self.attention.reads_projections:
            return
        keys: Projection = self.k_proj
        if self.groups > 1:
            keys = GroupedKeys(self.k_proj, self.groups, self.head_dim, self.kdim)
        self.attention.bind_projections(self.q_proj, keys)

    def reset_parameters(self) -> None:
        """Initialise as PyTorch's module does; the encoding's parameters are unchanged."""
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            # The bound of PyTorch's single matrix (3C, C) for all three.
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    @property
    def causal(self) -> bool:
        """Return whether a query at position s attends only to keys t <= s."""
        return self.attention.causal

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool | None = None,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend over whole sequences, as PyTorch's module does.

        Args:
            query: (B, T, C), or (T, C) of one sequence.
            key: (B, S, kdim); the same tensor as ``query`` for self-attention. A causal layer is
                always self-attention, whatever the tensors.
            value: (B, S, vdim).
            key_padding_mask: (B, S), bool with True where padded, or floating point: -inf where
                padded, other values are added to the logits.
            need_weights: also return the weights; by default if the attention has them.
            attn_mask: (T, S), (B, T, S), (B H, T, S) or (B, H, T, S), bool with True where
                hidden, or floating point and added to the logits; vanilla attention only.
            average_attn_weights: return the mean weights over heads, or those of each head.
            is_causal: hint that ``attn_mask`` is the causal mask; a causal layer does not need it.
            query_positions: (B or 1, T) int64; by default ``key_positions`` in self-attention,
                else counted from 0, and required if keys are padded.
            key_positions: (B or 1, S) int64; by default ``query_positions`` in self-attention,
                else counted without padding.
            cu_seqlens: (N + 1,) int32 or int64, 0 and the end of each document of a packed row
                (B = 1). Positions restart in each document, and attention stays within it.
            max_seqlen: length of the longest document; giving it avoids waiting for the device.

        Returns:
            (B, T, C), and the weights (B, T, S), (B, H, T, S) without averaging, or None.

        Raises:
            ValueError: an argument that does not fit or is not supported.
        """
        # A causal layer is self-attention whatever the tensors, since checkpointing and copies to
        # devices make several tensors of one.
        is_self = self.causal or key is query
        is_single = query.dim() == 2
        if is_single:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            if key_padding_mask is not None and key_padding_mask.dim() == 1:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        check_call(query, key, value, attn_mask, is_causal=is_causal, causal=self.causal)
        check_optional_positions("query_positions", query_positions, query)
        check_optional_positions("key_positions", key_positions, key)
        if self.attention.hooks and not is_self and key_padding_mask is not None:
            check_query_positions(query_positions)
        if max_seqlen is not None and cu_seqlens is None:
            raise ValueError(
                f"`max_seqlen` must be None without cu_seqlens, but is {max_seqlen} instead."
            )
        if need_weights is None:
            need_weights = self.attention.gives_weights
        q, k, v = self._heads(query, key, value)
        if cu_seqlens is not None:
            check_packed(
                query,
                is_self,
                key_padding_mask=key_padding_mask,
                attn_mask=attn_mask,
                query_positions=query_positions,
                key_positions=key_positions,
            )
            documents = Documents.of(cu_seqlens, query.size(1), max_seqlen)
            output, weights = attend_documents(
                self.attention, q, k, v, documents, need_weights=need_weights
            )
        else:
            padding, added = padding_mask(key_padding_mask, key, self.attention)
            mask = None if self.causal and is_causal else attn_mask
            mask = attention_mask(mask, q, k)
            if key_positions is None and is_self:
                key_positions = query_positions
            if key_positions is None:
                key_positions = count_positions(padding, key.size(1), key.device)
            if query_positions is None and is_self:
                query_positions = key_positions
            if query_positions is None:
                query_positions = count_positions(None, query.size(1), query.device)
            output, weights = self.attention(
                q,
                k,
                v,
                q_positions=query_positions,
                k_positions=key_positions,
                key_padding_mask=padding,
                attn_mask=to_added(mask, added, query.size(1)),
                need_weights=need_weights,
            )
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        merged = self.out_proj(output.transpose(1, 2).flatten(2))
        if is_single:
            return merged.squeeze(0), None if weights is None else weights.squeeze(0)
        return merged, weights

    def step(
        self, x: Tensor, state: State | None = None, key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Attend causally from the next tokens to themselves and those in ``state``.

        Args:
            x: (B, T, C), usually one token.
            state: state after the earlier tokens; None before the first.
            key_padding_mask: (B, T) bool for these tokens, True where padded.

        Returns:
            (B, T, C) and the state: tensors with the batch first, so that a beam can index them.
            Under linear attention its size is constant.

        Raises:
            ValueError: the layer is not causal, or the mask is not bool or has other rows.
        """
        given = dict(state or {})
        if key_padding_mask is not None:
            check_padding_mask("key_padding_mask", key_padding_mask, x.size(1))
            if key_padding_mask.size(0) != x.size(0):  # each row of a beam takes its own along
                raise ValueError(
                    f"`key_padding_mask` must be {tuple(x.shape[:2])} as `x`, but is "
                    f"{tuple(key_padding_mask.shape)} instead."
                )
        seen = given.pop(_NEXT, x.new_zeros(x.size(0), 1, dtype=torch.long))
        positions = make_positions(key_padding_mask, x.size(1), offset=seen, device=x.device)
        q, k, v = self._heads(x, x, x)
        output, after = self.attention.step(
            q,
            k,
            v,
            positions=positions,
            key_padding_mask=key_padding_mask,
            state=given or None,
        )
        count = x.size(1) if key_padding_mask is None else (~key_padding_mask).sum(1, keepdim=True)
        return self.out_proj(output.transpose(1, 2).flatten(2)), {**after, _NEXT: seen + count}

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project and split heads: queries (B, H, T, D), keys and values (B, H, S, D)."""

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        self._bind_projections()
        q, k, v = split(self.q_proj(query)), split(self.k_proj(key)), split(self.v_proj(value))
        if self.groups > 1:
            k, v = (x.repeat_interleave(self.groups, 1) for x in (k, v))
        return q, k, v

    def extra_repr(self) -> str:
        heads = f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}"
        return f"embed_dim={self.embed_dim}, {heads}, causal={self.causal}"
