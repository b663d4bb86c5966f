"""fairseq's Transformer encoder with any position encoding and attention."""

from dataclasses import replace
from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from fairseq.modules import transformer_layer
from torch import Tensor, nn

from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import ModelEncodings, PositionEncoding
from fairseq_plugins.modules.options import PositionEncodingConfig
from fairseq_plugins.modules.segments import SegmentEmbedding
from fairseq_plugins.modules.stack import (
    build_layer_attention,
    build_stack_encodings,
    encode_layer_input,
    has_padding,
    install_input_encodings,
    query_passes,
    sample_positions,
    upgrade_learned_table,
    with_activation_checkpointing,
)


class PositionalEncoderLayer(transformer_layer.TransformerEncoderLayerBase):
    """fairseq's encoder layer with replaced self-attention.

    ``Positions`` are passed as the padding mask, which fairseq hands to the attention unchanged.

    Args:
        config: fairseq's options.
        options: options of the position encoding and attention.
        encoding: encoding of this layer's self-attention.
    """

    def __init__(
        self,
        config: TransformerConfig,
        options: PositionEncodingConfig,
        encoding: PositionEncoding | None,
    ) -> None:
        # The superclass's constructor builds the self-attention. A tuple, since modules cannot be
        # assigned before nn.Module's constructor has run.
        self._self_attention = (options, encoding)
        super().__init__(config)
        del self._self_attention

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return build_layer_attention(*self._self_attention, cfg, "encoder")

    def run_queries(
        self, queries: Tensor, content: Tensor, positions: Positions, passes: int
    ) -> Tensor:
        """Update queries several times over fixed keys and values.

        Args:
            queries: (T, B, C), input of the first pass.
            content: (T, B, C), input of keys and values.
            positions: positions of both.
            passes: number of passes.

        Returns:
            Output (T, B, C) of the last pass.
        """
        if self.normalize_before:
            content = self.self_attn_layer_norm(content)
        at = replace(positions, content=content)
        for _ in range(passes):
            queries = self(queries, encoder_padding_mask=at)
        return queries


class PositionalEncoder(TransformerEncoderBase):
    """fairseq's encoder with replaced layers.

    Args:
        config: fairseq's options.
        options: options of the position encoding and attention.
        dictionary: input dictionary.
        embed_tokens: token embeddings.
        encodings: encodings of the stack; by default built from the options.
        segments: embedding of a pair's second sentence, or None.

    Raises:
        ValueError: ``checkpoint_activations`` or ``offload_activations`` with a layer that runs
            several passes, or the encodings reject an option.
    """

    def __init__(
        self,
        config: TransformerConfig,
        options: PositionEncodingConfig,
        dictionary: Any,
        embed_tokens: nn.Module,
        encodings: ModelEncodings | None = None,
        segments: SegmentEmbedding | None = None,
    ) -> None:
        encodings = encodings or build_stack_encodings(
            options,
            config,
            "encoder",
            max_positions=config.max_source_positions,
            vocab_size=len(dictionary),
        )
        self._options, self._layer_encodings = options, iter(encodings.layers)
        super().__init__(config, dictionary, embed_tokens)
        del self._options, self._layer_encodings
        install_input_encodings(self, encodings)
        self.segment_embedding = segments
        # By index: iteration with LayerDrop skips layers.
        layers = (self.layers[i] for i in range(len(self.layers)))
        recomputes = config.checkpoint_activations or config.offload_activations
        if recomputes and any(query_passes(self, layer) for layer in layers):
            name = ("offload" if config.offload_activations else "checkpoint") + "_activations"
            raise ValueError(
                f"`{name}` must be False with `decoder=queries` of deberta_emd, "
                "whose recomputed keys would have no gradient, but is True."
            )

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        layer = PositionalEncoderLayer(cfg, self._options, next(self._layer_encodings))
        return with_activation_checkpointing(layer, cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, Any]:
        """Return fairseq's dictionary of outputs for tokens (B, T), padded on either side."""
        padding = src_tokens.eq(self.padding_idx)
        padded = padding if has_padding(padding) else None
        positions = sample_positions(
            self, Positions.of(padded, src_tokens.size(1), src_tokens.device)
        )
        lengths = (~padding).sum(1)
        x, embedding = self._embed(src_tokens, positions.index, lengths, token_embeddings)
        if padded is not None:
            x = x.masked_fill(padded.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)
        states = [x]
        for layer in self.layers:
            content = x
            x = encode_layer_input(self, layer, x, positions.index, lengths=lengths)
            if passes := query_passes(self, layer):
                x = layer.run_queries(x, content, positions, passes)
            else:
                x = layer(x, encoder_padding_mask=positions)
            states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states if return_all_hiddens else [],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths.int().unsqueeze(1)],
        }

    def _embed(
        self, tokens: Tensor, positions: Tensor, lengths: Tensor, token_embeddings: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings (B, T, C) with and without position."""
        if token_embeddings is None:
            token_embeddings = self.embed_tokens(tokens)
        x = embedding = self.embed_scale * token_embeddings
        if self.segment_embedding is not None:
            x = self.segment_embedding(x, tokens)
        if self.position_embedding is not None:
            x = self.position_embedding.embed(x, positions, lengths=lengths, tokens=tokens)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        return x, embedding

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Upgrade as fairseq does, and convert the learned table of its own models."""
        upgrade_learned_table(self, state_dict, name)
        super().upgrade_state_dict_named(state_dict, name)
