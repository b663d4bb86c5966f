"""Options of ``pe_transformer``: a flat dataclass with the flags of fairseq's ``transformer``."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import (
    DEFAULT_MAX_SOURCE_POSITIONS,
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerConfig,
)

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.common.option_field import option
from fairseq_plugins.modules.cutoffs import parse_cutoffs
from fairseq_plugins.modules.options import PositionEncodingConfig
from fairseq_plugins.modules.vocabulary import DictionaryConfig

_ACTIVATIONS = ChoiceEnum(utils.get_available_activation_fns())
_ATTENTIONS = ChoiceEnum(list(ATTENTIONS))

ATTENTION_SITES = ("encoder", "decoder", "cross")


@dataclass
class TransformerOptions(FairseqDataclass):
    """fairseq's options of ``transformer``, with the defaults of its base architecture."""

    encoder_layers: int = option(6, "number of encoder layers")
    encoder_embed_dim: int = option(512, "width of the encoder")
    encoder_ffn_embed_dim: int = option(2048, "width of the encoder's feed-forward part")
    encoder_attention_heads: int = option(8, "number of encoder heads")
    encoder_normalize_before: bool = option(False, "layer norm before each part of a layer")
    encoder_learned_pos: bool = option(
        False, "fairseq's own embedding beside a relative encoding is learned"
    )
    encoder_layerdrop: float = option(0.0, "probability of dropping an encoder layer")
    encoder_embed_path: Optional[str] = option(None, "path to a pre-trained source embedding")
    decoder_layers: int = option(6, "number of decoder layers")
    decoder_embed_dim: Optional[int] = option(None, "width of the decoder; the encoder's if unset")
    decoder_ffn_embed_dim: Optional[int] = option(
        None, "width of the decoder's feed-forward part; the encoder's if unset"
    )
    decoder_output_dim: Optional[int] = option(
        None, "width before the vocabulary; decoder_embed_dim if unset"
    )
    decoder_attention_heads: int = option(8, "number of decoder heads")
    decoder_normalize_before: bool = option(False, "layer norm before each part of a layer")
    decoder_learned_pos: bool = option(
        False, "fairseq's own embedding beside a relative encoding is learned"
    )
    decoder_layerdrop: float = option(0.0, "probability of dropping a decoder layer")
    decoder_embed_path: Optional[str] = option(None, "path to a pre-trained target embedding")
    no_decoder_final_norm: bool = option(
        False, "no layer norm after the last layer of a decoder with decoder_normalize_before"
    )
    activation_fn: _ACTIVATIONS = option("relu", "activation of the feed-forward part")
    dropout: float = option(0.1, "dropout")
    attention_dropout: float = option(0.0, "dropout of attention weights")
    activation_dropout: float = option(0.0, "dropout after the activation")
    max_source_positions: int = option(DEFAULT_MAX_SOURCE_POSITIONS, "longest source")
    max_target_positions: int = option(DEFAULT_MAX_TARGET_POSITIONS, "longest target")
    share_decoder_input_output_embed: bool = option(
        False, "one table for the decoder's input and output"
    )
    share_all_embeddings: bool = option(
        False, "one table for source, target and output; needs a joined dictionary"
    )
    no_token_positional_embeddings: bool = option(
        False, "no absolute embedding beside a relative encoding"
    )
    layernorm_embedding: bool = option(False, "layer norm of the embedded tokens")
    no_scale_embedding: bool = option(False, "do not multiply embeddings by sqrt(width)")
    adaptive_softmax_cutoff: Optional[str] = option(
        None, "cut-offs of an adaptive softmax, with the criterion adaptive_loss"
    )
    adaptive_softmax_dropout: float = option(0.0, "dropout of the adaptive softmax's tails")
    adaptive_softmax_factor: float = option(4.0, "ratio of widths of successive tails")
    quant_noise_pq: float = option(0.0, "quantisation noise (iterative PQ)")
    quant_noise_pq_block_size: int = option(8, "block size of quantisation noise")
    quant_noise_scalar: float = option(0.0, "scalar quantisation noise")
    checkpoint_activations: bool = option(False, "recompute activations: less memory, more time")
    offload_activations: bool = option(
        False, "checkpoint activations, and keep the layer inputs in CPU memory"
    )


@dataclass
class PETransformerConfig(TransformerOptions, PositionEncodingConfig, DictionaryConfig):
    """Options of fairseq's ``transformer`` and of its position encodings.

    ``attention_type``, ``position_encoding`` and ``position_encoding_options`` apply to both
    self-attentions; ``feature_map``, ``linear_normalizer`` and the normalizer's options apply to
    every linear attention.
    """

    encoder_attention_type: Optional[_ATTENTIONS] = option(
        None, "attention of the encoder; attention_type if unset"
    )
    encoder_position_encoding: Optional[str] = option(
        None, "encoding of the encoder; position_encoding if unset"
    )
    encoder_position_encoding_options: Optional[str] = option(
        None, "its options; position_encoding_options if unset and the encoding is the common one"
    )
    decoder_attention_type: Optional[_ATTENTIONS] = option(
        None, "self-attention of the decoder; attention_type if unset"
    )
    decoder_position_encoding: Optional[str] = option(
        None, "encoding of the decoder's self-attention; position_encoding if unset"
    )
    decoder_position_encoding_options: Optional[str] = option(
        None, "its options; position_encoding_options if unset and the encoding is the common one"
    )
    cross_attention_type: _ATTENTIONS = option("vanilla", "attention of the decoder to the encoder")
    cross_position_encoding: str = option("none", "encoding of the cross-attention")
    cross_position_encoding_options: str = option("", "its options")


def options_at(config: Any, site: str) -> PositionEncodingConfig:
    """Return the encoding and attention options at one of ``ATTENTION_SITES``.

    A site with its own encoding does not inherit the options of the common one.
    """
    options = {name: getattr(config, name) for name in PositionEncodingConfig.__annotations__}
    if not _takes_common_options(config, site):
        options["position_encoding_options"] = ""
    for name in ("attention_type", "position_encoding", "position_encoding_options"):
        options[name] = getattr(config, f"{site}_{name}") or options[name]
    return PositionEncodingConfig(**options)


def _takes_common_options(config: Any, site: str) -> bool:
    """Return whether a site uses the common encoding and sets no options itself."""
    is_common = getattr(config, f"{site}_position_encoding") in (None, config.position_encoding)
    return is_common and getattr(config, f"{site}_position_encoding_options") is None


def check_common_options(config: Any) -> None:
    """Check that the common attention, encoding and its options apply to some attention.

    Raises:
        ValueError: one is given, but every attention has its own.
    """
    words = config.position_encoding_options
    if words and not any(_takes_common_options(config, site) for site in ATTENTION_SITES):
        raise ValueError(
            "`position_encoding_options` must be left out if encoder and decoder both set their "
            f"own encoding or options, but is {words!r} instead; use "
            "`encoder_position_encoding_options` and `decoder_position_encoding_options`."
        )
    defaults = PositionEncodingConfig()
    for name in ("attention_type", "position_encoding"):
        value = str(getattr(config, name))
        taken = {str(getattr(config, f"{site}_{name}")) for site in ATTENTION_SITES}
        if value != str(getattr(defaults, name)) and not taken & {str(None), value}:
            raise ValueError(
                f"`{name}` must be left out if encoder, decoder and cross-attention all set their "
                f"own, but is {value!r} instead; use `encoder_{name}`, `decoder_{name}` and "
                f"`cross_{name}`."
            )


def to_transformer_config(options: TransformerOptions) -> TransformerConfig:
    """Convert to fairseq's nested options, filling in defaults as its base architecture does.

    Raises:
        ValueError: the output shares a table of another width, or the cut-offs are invalid.
    """
    config = TransformerConfig.from_namespace(options)
    cutoffs = parse_cutoffs("adaptive_softmax_cutoff", options.adaptive_softmax_cutoff)
    config.adaptive_softmax_cutoff = cutoffs
    decoder, encoder = config.decoder, config.encoder
    # Read the flat options: in a composed config fairseq replaces unset values by 512.
    decoder.embed_dim = options.decoder_embed_dim or encoder.embed_dim
    decoder.ffn_embed_dim = options.decoder_ffn_embed_dim or encoder.ffn_embed_dim
    decoder.output_dim = options.decoder_output_dim or decoder.embed_dim
    decoder.input_dim = decoder.embed_dim
    shares = options.share_decoder_input_output_embed or options.share_all_embeddings
    if shares and decoder.output_dim != decoder.embed_dim:
        raise ValueError(
            f"`decoder_output_dim` must be decoder_embed_dim={decoder.embed_dim} if the output "
            f"shares the embedding table, but is {decoder.output_dim} instead."
        )
    return config
