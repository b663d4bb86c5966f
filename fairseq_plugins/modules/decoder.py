"""fairseq's decoder with a position encoding under any attention."""

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from fairseq.modules import transformer_layer
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_plugins.attention import make_positions
from fairseq_plugins.attention.multihead import PositionalMultiheadAttention
from fairseq_plugins.encodings import (
    EncodingContext,
    ModelEncodings,
    PositionEncoding,
    build_model_encodings,
    get_entry,
    parse_options,
    with_absolute_embedding,
)
from fairseq_plugins.modules.options import PositionEncodingConfig, build_model_attention


def build_decoder_encodings(
    options: PositionEncodingConfig, config: TransformerConfig
) -> ModelEncodings:
    """The encodings of a causal decoder; the absolute embedding stays on as in the LRPE paper.

    Raises:
        ValueError: the width is no multiple of the heads, or what the encodings refuse.
    """
    width, heads = config.decoder.embed_dim, config.decoder.attention_heads
    if width % heads:
        raise ValueError(
            f"`decoder_embed_dim` must be a multiple of decoder_attention_heads={heads}, "
            f"but is {width} instead."
        )
    absolute = "learned" if config.decoder.learned_pos else "base"
    name = with_absolute_embedding(
        options.position_encoding, None if config.no_token_positional_embeddings else absolute
    )
    _check_absolute(options.position_encoding, config, replaced=name == options.position_encoding)
    words = parse_options(options.position_encoding_options)
    if name != options.position_encoding and "+" not in options.position_encoding:
        words = {f"{options.position_encoding}.{key}": value for key, value in words.items()}
    context = EncodingContext(
        num_heads=heads,
        head_dim=width // heads,
        embed_dim=width,
        max_positions=config.max_target_positions,
        causal=True,
    )
    return build_model_encodings(name, config.decoder.layers, context, words)


def _check_absolute(name: str, config: TransformerConfig, *, replaced: bool) -> None:
    """Refuse fairseq's options of its own embedding where they would be ignored."""
    off, learned = config.no_token_positional_embeddings, config.decoder.learned_pos
    if off and any("embed" in get_entry(part).hooks for part in name.split("+")):
        raise ValueError(
            "`no_token_positional_embeddings` must be False with an absolute position_encoding, "
            f"but is True with {name!r}; position_encoding=none has no position at all."
        )
    if learned and replaced:
        raise ValueError(
            "`decoder_learned_pos` must be False where fairseq's own embedding is off or replaced, "
            f"but is True with position_encoding={name!r}; position_encoding=learned is a table."
        )


class PositionalDecoderLayer(transformer_layer.TransformerDecoderLayerBase):
    """fairseq's decoder layer with its self-attention replaced.

    Args:
        config: fairseq's.
        options: of the position encoding and attention.
        encoding: of this layer's self-attention.
        no_encoder_attn: whether the layer has self-attention only.
    """

    def __init__(
        self,
        config: TransformerConfig,
        options: PositionEncodingConfig,
        encoding: PositionEncoding | None,
        no_encoder_attn: bool,
    ) -> None:
        # The superclass builds its self-attention while it is constructed, so this comes first;
        # in a tuple, because a module cannot be assigned before nn.Module's constructor ran.
        self._self_attention = (options, encoding)
        super().__init__(config, no_encoder_attn)
        del self._self_attention

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        if add_bias_kv or add_zero_attn:
            raise ValueError("`add_bias_kv` and `add_zero_attn` must be False: no position fits.")
        options, encoding = self._self_attention
        attention = build_model_attention(
            options,
            encoding,
            attention_type=options.attention_type,
            num_heads=cfg.decoder.attention_heads,
            head_dim=embed_dim // cfg.decoder.attention_heads,
            causal=True,
            dropout=cfg.attention_dropout,
        )
        return PositionalMultiheadAttention(
            embed_dim,
            attention,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


class PositionalDecoder(TransformerDecoderBase):
    """fairseq's decoder; causality lies in the attention, so no T x T mask is made here.

    Args:
        config: fairseq's.
        options: of the position encoding and attention.
        dictionary: of the output.
        embed_tokens: token embeddings.
        no_encoder_attn: whether there is no encoder to attend to.
    """

    def __init__(
        self,
        config: TransformerConfig,
        options: PositionEncodingConfig,
        dictionary: Any,
        embed_tokens: nn.Module,
        no_encoder_attn: bool = False,
    ) -> None:
        encodings = build_decoder_encodings(options, config)
        self._options, self._layer_encodings = options, iter(encodings.layers)
        super().__init__(config, dictionary, embed_tokens, no_encoder_attn=no_encoder_attn)
        del self._options, self._layer_encodings
        # The superclass's own embedding is the encoding `base` here.
        self.embed_positions = None
        self.position_embedding = encodings.embedding

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        layer: nn.Module = PositionalDecoderLayer(
            cfg, self._options, next(self._layer_encodings), no_encoder_attn
        )
        if cfg.checkpoint_activations:
            layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        return layer

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: Any = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, C) of the tokens (B, T); of the last token alone in a decoding step."""
        if full_context_alignment:
            raise ValueError("`full_context_alignment` must be False: the attention is causal.")
        last_layer = self.num_layers - 1 if alignment_layer is None else alignment_layer
        encoder = _first(encoder_out, "encoder_out")
        encoder_padding = _first(encoder_out, "encoder_padding_mask")
        x, padding_mask = self._embed(prev_output_tokens, incremental_state is not None)
        x = x.transpose(0, 1)
        inner_states, attn = [x], None
        for index, layer in enumerate(self.layers):
            x, weights, _ = layer(
                x,
                encoder,
                encoder_padding,
                incremental_state,
                self_attn_padding_mask=padding_mask,
                need_attn=index == last_layer,
                need_head_weights=index == last_layer,
            )
            inner_states.append(x)
            if weights is not None and index == last_layer:
                attn = weights[:alignment_heads].to(x).mean(0)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def _embed(self, tokens: Tensor, last_only: bool) -> tuple[Tensor, Tensor | None]:
        """Embedded tokens (B, T, C) and their padding mask (B, T), None without padding."""
        padding = tokens.eq(self.padding_idx)
        has_padding = bool(padding.any())
        positions = make_positions(
            padding if has_padding else None, tokens.size(1), device=tokens.device
        )
        if last_only:
            tokens, padding, positions = tokens[:, -1:], padding[:, -1:], positions[:, -1:]
        x = self.embed_scale * self.embed_tokens(tokens.contiguous())
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.position_embedding is not None:
            x = self.position_embedding.embed(x, positions, tokens=tokens)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x), padding if has_padding else None

    def max_positions(self) -> int:
        """Longest sequence: fairseq cuts or refuses longer ones."""
        return int(self.max_target_positions)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        """Nothing here may make a T x T mask."""
        raise NotImplementedError("causality lies in the attention")


def _first(encoder_out: dict[str, list[Tensor]] | None, name: str) -> Tensor | None:
    """fairseq's encoders give each of their outputs as a list of none or one."""
    values = encoder_out[name] if encoder_out is not None else []
    return values[0] if values else None
