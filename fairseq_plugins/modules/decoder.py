"""fairseq's Transformer decoder with any position encoding and attention."""

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from fairseq.modules import transformer_layer
from torch import Tensor, nn

from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.position_bounds import with_end_of
from fairseq_plugins.modules.options import PositionEncodingConfig
from fairseq_plugins.modules.stack import (
    build_cross_encodings,
    build_layer_attention,
    build_stack_encodings,
    encode_layer_input,
    has_padding,
    install_input_encodings,
    sample_positions,
    upgrade_learned_table,
    with_activation_checkpointing,
)

LayerParts = tuple[PositionEncodingConfig, PositionEncoding | None]  # of one attention


class PositionalDecoderLayer(transformer_layer.TransformerDecoderLayerBase):
    """fairseq's decoder layer with replaced attentions.

    ``Positions`` are passed as the two padding masks, which fairseq hands to the attentions
    unchanged.

    Args:
        config: fairseq's options.
        self_parts: options and encoding of the self-attention.
        cross_parts: those of the attention to the encoder; None for a layer without.
    """

    def __init__(
        self, config: TransformerConfig, self_parts: LayerParts, cross_parts: LayerParts | None
    ) -> None:
        # The superclass's constructor builds the attentions. Tuples, since modules cannot be
        # assigned before nn.Module's constructor has run.
        self._self_parts, self._cross_parts = self_parts, cross_parts
        super().__init__(config, no_encoder_attn=cross_parts is None)
        del self._self_parts, self._cross_parts
        self.gives_weights = cross_parts is not None and self.encoder_attn.attention.gives_weights
        # Otherwise fairseq requests attention weights of every layer in evaluation.
        self.need_attn = self.gives_weights

    def build_self_attention(self, embed_dim: int, cfg: Any, *_: Any, **__: Any) -> nn.Module:
        return build_layer_attention(*self._self_parts, cfg, "decoder")

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        assert self._cross_parts is not None
        return build_layer_attention(*self._cross_parts, cfg, "cross")

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """Prepare as fairseq does, but request weights only from attentions that compute them."""
        self.need_attn = need_attn and self.gives_weights


class PositionalDecoder(TransformerDecoderBase):
    """fairseq's decoder, made causal by its attentions instead of a T x T mask.

    Args:
        config: fairseq's options.
        options: options of the self-attention and its position encoding.
        dictionary: output dictionary.
        embed_tokens: token embeddings.
        cross: options of the attention to an encoder; None without an encoder.
    """

    def __init__(
        self,
        config: TransformerConfig,
        options: PositionEncodingConfig,
        dictionary: Any,
        embed_tokens: nn.Module,
        cross: PositionEncodingConfig | None = None,
    ) -> None:
        encodings = build_stack_encodings(
            options,
            config,
            "decoder",
            max_positions=config.max_target_positions,
            vocab_size=len(dictionary),
        )
        self_parts = [(options, encoding) for encoding in encodings.layers]
        cross_parts: list[LayerParts | None] = [None] * len(self_parts)
        if cross is not None:
            cross_parts = [(cross, encoding) for encoding in build_cross_encodings(cross, config)]
        self._parts = zip(self_parts, cross_parts, strict=True)
        super().__init__(config, dictionary, embed_tokens, no_encoder_attn=cross is None)
        del self._parts
        install_input_encodings(self, encodings)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return with_activation_checkpointing(PositionalDecoderLayer(cfg, *next(self._parts)), cfg)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: Any = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return features (B, T, C) of tokens (B, T); only the last with ``incremental_state``."""
        if full_context_alignment:
            raise ValueError("`full_context_alignment` must be False: the attention is causal.")
        last_layer = self.num_layers - 1 if alignment_layer is None else alignment_layer
        encoder = _first(encoder_out, "encoder_out")
        encoder_padding = _first(encoder_out, "encoder_padding_mask")
        if encoder_padding is not None and not has_padding(encoder_padding):
            encoder_padding = None
        x, positions, sampled = self._embed(prev_output_tokens, incremental_state is not None)
        across = None
        if encoder is not None:
            keys = Positions.of(encoder_padding, encoder.size(0), encoder.device)
            across = positions.across(keys)
        x = x.transpose(0, 1)
        inner_states, attn = [x], None
        for index, layer in enumerate(self.layers):
            x = encode_layer_input(self, layer, x, sampled.index)
            need_weights = index == last_layer and layer.gives_weights
            x, weights, _ = layer(
                x,
                encoder,
                across,
                incremental_state,
                self_attn_padding_mask=sampled,
                need_attn=need_weights,
                need_head_weights=need_weights,
            )
            inner_states.append(x)
            if weights is not None and need_weights:
                attn = weights[:alignment_heads].to(x).mean(0)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def _embed(self, tokens: Tensor, last_only: bool) -> tuple[Tensor, Positions, Positions]:
        """Return embeddings (B, T, C), positions, and the positions for the encodings.

        With ``last_only``, for incremental decoding, only those of the last token; its embedding
        may depend on the preceding tokens.
        """
        padding = tokens.eq(self.padding_idx)
        padded = padding if has_padding(padding) else None
        positions = Positions.of(padded, tokens.size(1), tokens.device)
        sampled = sample_positions(self, positions)
        index = sampled.index
        if last_only:
            embedding = self.position_embedding
            window = embedding.embed_window if embedding is not None else 1
            tokens, index = _last(tokens, sampled, padding, window)
        x = self.embed_scale * self.embed_tokens(tokens.contiguous())
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.position_embedding is not None:
            x = self.position_embedding.embed(x, index, tokens=tokens)
        if last_only:
            x, positions, sampled = x[:, -1:], positions.last(len(x)), sampled.last(len(x))
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x), positions, sampled

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Upgrade as fairseq does, and convert the learned table of its own models."""
        upgrade_learned_table(self, state_dict, name)
        super().upgrade_state_dict_named(state_dict, name)


def _last(
    tokens: Tensor, positions: Positions, padding: Tensor, window: int
) -> tuple[Tensor, Tensor]:
    """Return the last ``window`` tokens (B, window) and their positions (B or 1, window).

    Padding in between, as after a shorter prompt, is skipped, so that neighbours are adjacent.
    """
    index = positions.index
    if window > 1 and positions.padding_mask is not None:
        order = (~padding).long().argsort(dim=1, stable=True)
        tokens, index = tokens.gather(1, order), index.gather(1, order)
    return tokens[:, -window:], with_end_of(index[:, -window:], positions.index)


def _first(encoder_out: dict[str, list[Tensor]] | None, name: str) -> Tensor | None:
    """Return an encoder output, which fairseq stores as a list of zero or one tensor."""
    values = encoder_out[name] if encoder_out is not None else []
    return values[0] if values else None
