"""fairseq adapter: projections, positions and incremental state around an attention."""

import math
from collections.abc import Callable
from typing import Any

from fairseq.incremental_decoding_utils import with_incremental_state
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_plugins.attention.base import Attention, State
from fairseq_plugins.attention.cache import reordered
from fairseq_plugins.attention.positions import Positions

_KEEPS_ORDER = "_keeps_order"  # attribute of a tensor `order`, the cache of `_keeps_order`

IncrementalState = dict[str, dict[str, Tensor | None]]


@with_incremental_state
class FairseqMultiheadAttention(nn.Module):
    """Replacement for fairseq's ``MultiheadAttention`` with the same names and initial values.

    Shapes here are fairseq's: T x B x C.

    Args:
        embed_dim: C of queries and output.
        attention: the attention of the heads.
        kdim: C of keys; ``embed_dim`` where None.
        vdim: C of values; ``embed_dim`` where None.
        encoder_decoder_attention: keys are fixed, and cached while decoding.
        q_noise: amount of fairseq's quantisation noise.
        qn_block_size: its block size.

    Raises:
        ValueError: ``embed_dim`` is not ``num_heads * head_dim`` of the attention.
    """

    # Added by the decorator.
    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    def __init__(
        self,
        embed_dim: int,
        attention: Attention,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        encoder_decoder_attention: bool = False,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads, self.head_dim = attention.num_heads, attention.head_dim
        if self.num_heads * self.head_dim != embed_dim:
            raise ValueError(
                f"`embed_dim` must be num_heads * head_dim = {self.num_heads * self.head_dim}, "
                f"but is {embed_dim} instead."
            )
        self.attention = attention
        self.encoder_decoder_attention = encoder_decoder_attention
        kdim, vdim = kdim or embed_dim, vdim or embed_dim

        def linear(inputs: int) -> nn.Module:
            layer: nn.Module = quant_noise(nn.Linear(inputs, embed_dim), q_noise, qn_block_size)
            return layer

        self.k_proj, self.v_proj = linear(kdim), linear(vdim)
        self.q_proj, self.out_proj = linear(embed_dim), linear(embed_dim)
        attention.bind_projections(self.q_proj, self.k_proj)
        self.register_state_dict_pre_hook(_unfold)
        self.register_load_state_dict_pre_hook(_unfold)
        self._reset_parameters(same_dim=kdim == embed_dim == vdim)

    def _reset_parameters(self, same_dim: bool) -> None:
        gain = 1 / math.sqrt(2) if same_dim else 1.0
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            nn.init.xavier_uniform_(projection.get_parameter("weight"), gain=gain)
        nn.init.xavier_uniform_(self.out_proj.get_parameter("weight"))
        nn.init.zeros_(self.out_proj.get_parameter("bias"))

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | Positions | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend as fairseq's module does.

        Args:
            query: (T, B, C).
            key: (S, B, C), or None if a static key is cached.
            value: like ``key``.
            key_padding_mask: ``Positions`` of the queries and keys (in a decoding step, of the new
                tokens), which include the padding mask; fairseq's layers pass this argument on
                unchanged. Or a mask (B, S) alone, True where padded, for whole sequences whose
                queries are not padded.
            incremental_state: cache of decoding; ``query`` then holds only the next tokens.
            need_weights: return the weights, mean over heads (B, T, S).
            static_kv: the key is the same at every step.
            attn_mask: see ``Attention.forward``.
            before_softmax: must be False.
            need_head_weights: return the weights per head (H, B, T, S).

        Returns:
            (T, B, C) and the weights or None.

        Raises:
            ValueError: an argument that is not supported.
        """
        if before_softmax:
            raise ValueError("`before_softmax` must be False: logits are not returned.")
        need_weights = need_weights or need_head_weights
        at = key_padding_mask
        if not isinstance(at, Positions):
            if incremental_state is not None:
                raise ValueError(
                    "`key_padding_mask` must be `Positions` in a decoding step: a mask of the new "
                    "tokens does not tell how many came before them."
                )
            at = self._count_positions(at, query, key)
        self.attention.bind_projections(self.q_proj, self.k_proj)
        q = self._heads(self.q_proj(query))
        if incremental_state is None:
            output, weights = self._whole(q, key, value, at, attn_mask, need_weights)
        else:
            if at.memory is None and (need_weights or attn_mask is not None):
                raise ValueError(
                    "`need_weights` and `attn_mask` must be left off in a decoding step: a step "
                    "sees every token before it."
                )
            output, weights = self._decode(q, key, value, at, incremental_state, need_weights)
        if weights is not None:
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(1)
        batch, _, length, _ = output.shape
        merged = output.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim)
        return self.out_proj(merged), weights

    def _heads(self, x: Tensor) -> Tensor:
        """Split heads: (T, B, C) -> (B, H, T, D)."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def _key_value(self, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor]:
        assert key is not None and value is not None
        return self._heads(self.k_proj(key)), self._heads(self.v_proj(value))

    def _count_positions(
        self, padding_mask: Tensor | None, query: Tensor, key: Tensor | None
    ) -> Positions:
        """Count positions of whole sequences, for a layer that passes on a padding mask alone."""
        assert key is not None
        keys = Positions.of(padding_mask, key.size(0), key.device)
        if not self.encoder_decoder_attention:
            return keys
        return Positions.of(None, query.size(0), query.device).across(keys)

    def _whole(
        self,
        q: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        at: Positions,
        attn_mask: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        keys = at.keys
        if keys.content is not None:
            key = value = keys.content
        k, v = self._key_value(key, value)
        result: tuple[Tensor, Tensor | None] = self.attention(
            q,
            k,
            v,
            q_positions=at.index,
            k_positions=keys.index,
            key_padding_mask=keys.padding_mask,
            attn_mask=attn_mask,
            need_weights=need_weights,
            shared=at.shared,
        )
        return result

    def _decode(
        self,
        q: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        at: Positions,
        incremental_state: IncrementalState,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from the next tokens to all so far, or in cross-attention to fixed keys."""
        keys, state = at.keys, self._get_input_buffer(incremental_state)
        attention, mask, shared = self.attention, keys.padding_mask, at.shared
        if at.memory is None:
            k, v = self._key_value(key, value)
            output, state = attention.step(
                q,
                k,
                v,
                positions=at.index,
                key_padding_mask=mask,
                state=state or None,
                shared=shared,
            )
            self._set_input_buffer(incremental_state, state)
            return output, None
        if not state:
            k, v = self._key_value(key, value)
            state = attention.remember(k, v, k_positions=keys.index, key_padding_mask=mask)
            self._set_input_buffer(incremental_state, state)
        return attention.attend(
            q, state, q_positions=at.index, need_weights=need_weights, shared=shared
        )

    def make_generation_fast_(
        self,
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepare for inference; fairseq calls this once before generation.

        With ``--retain-dropout`` weights are dropped as in training.
        """
        named = retain_dropout_modules is None or type(self).__name__ in retain_dropout_modules
        self.attention.retains_dropout = retain_dropout and named
        self.attention.fold_basis_(self.q_proj, self.k_proj)

    def unfold(self) -> None:
        """Restore the trained weights, before saving or loading."""
        self.attention.unfold_basis_(self.q_proj, self.k_proj)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Reorder the state for beam search: row i becomes row ``new_order[i]``."""
        saved = self._get_input_buffer(incremental_state)
        if saved and not _keeps_order(new_order, next(iter(saved.values())).size(0)):
            self._set_input_buffer(incremental_state, reordered(saved, new_order))
        return incremental_state

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> State:
        saved = self.get_incremental_state(incremental_state, "attn_state")
        return dict(saved) if saved is not None else {}

    def _set_input_buffer(self, incremental_state: IncrementalState, state: State) -> None:
        self.set_incremental_state(incremental_state, "attn_state", state)


def _unfold(module: FairseqMultiheadAttention, *state: Any) -> None:
    module.unfold()


def _keeps_order(order: Tensor, batch: int) -> bool:
    """Return whether an order leaves every row in place, as in greedy search and sampling."""
    if order.is_inference():  # Such tensors have no version counter.
        return bool(order.tolist() == list(range(batch)))
    # Cached on the tensor, which all layers get, until it is written to.
    version = (order._version, batch)
    cached = getattr(order, _KEEPS_ORDER, None)
    if cached is None or cached[0] != version:
        cached = (version, order.tolist() == list(range(batch)))
        setattr(order, _KEEPS_ORDER, cached)
    return bool(cached[1])
