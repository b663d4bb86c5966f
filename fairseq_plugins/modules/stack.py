"""Encodings and attentions of a stack of layers, shared by encoder and decoder."""

from dataclasses import replace
from typing import Any

from fairseq.models.transformer import TransformerConfig
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_plugins.attention.base import draw_positions
from fairseq_plugins.attention.multihead import FairseqMultiheadAttention
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import (
    EncodingContext,
    IncompatibleEncodingError,
    ModelEncodings,
    PositionEncoding,
    build_model_encodings,
    expand_name,
    get_entry,
    parse_options,
)
from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.encodings.uncompiled import uncompiled
from fairseq_plugins.modules.naming import name_stack
from fairseq_plugins.modules.options import PositionEncodingConfig, build_model_attention

# Learned positions of a stack, in fairseq's own models and here.
THEIR_TABLE, OUR_TABLE = "embed_positions.weight", "position_embedding.weight"


def build_stack_encodings(
    options: PositionEncodingConfig,
    config: TransformerConfig,
    side: str,
    *,
    max_positions: int,
    vocab_size: int,
    base: str | None = None,
    begins_with_cls: bool = False,
    token_std: float | None = None,
) -> ModelEncodings:
    """Build the encodings of a stack; absolute embeddings stay on, as in the LRPE paper.

    Args:
        options: name and options of the encoding.
        config: fairseq's options.
        side: ``decoder``, which is causal, or ``encoder``.
        max_positions: length of the longest sequence.
        vocab_size: size of the dictionary.
        base: encoding that the name ``base`` stands for, if not the sinusoidal one.
        begins_with_cls: see ``EncodingContext``.
        token_std: initial standard deviation of the token embeddings; fairseq's by default.

    Raises:
        ValueError: the width is not a multiple of the heads, or the encodings reject an option.
    """
    stack = getattr(config, side)
    width, heads, head_dim = stack_widths(config, side)
    off, learned = config.no_token_positional_embeddings, stack.learned_pos
    named = name_stack(
        options.position_encoding,
        options.position_encoding_options,
        absolute=None if off else base or ("learned" if learned else "base"),
        base=base,
    )
    replaced = named.name == named.given
    _check_absolute(named.given, side, off=off, learned=learned and base is None, replaced=replaced)
    context = EncodingContext(
        num_heads=heads,
        head_dim=head_dim,
        embed_dim=width,
        max_positions=max_positions,
        causal=side == "decoder",
        vocab_size=vocab_size,
        begins_with_cls=begins_with_cls,
        token_std=(token_std or width**-0.5) if config.no_scale_embedding else None,
    )
    return build_model_encodings(named.name, stack.layers, context, named.options)


def stack_widths(config: TransformerConfig, side: str) -> tuple[int, int, int]:
    """Return width, number of heads and head dimension of a stack.

    Raises:
        ValueError: the width is not a multiple of the heads.
    """
    width, heads = getattr(config, side).embed_dim, getattr(config, side).attention_heads
    if width % heads:
        raise ValueError(
            f"`{side}_embed_dim` must be a multiple of {side}_attention_heads={heads}, "
            f"but is {width} instead."
        )
    return width, heads, width // heads


def check_cross_encoding(name: str) -> None:
    """Check that an encoding can be used in cross-attention.

    Raises:
        IncompatibleEncodingError: the encoding acts on the input of a stack, or draws positions.
        ValueError: unknown name.
    """
    for part in expand_name(name):
        if "embed" in get_entry(part).hooks:
            raise IncompatibleEncodingError(
                f"cross-attention cannot use the encoding {part!r}: its hook `embed` acts on the "
                "input of a stack of layers, which cross-attention does not have."
            )
        if hasattr(get_entry(part).cls, "reposition"):
            raise IncompatibleEncodingError(
                f"cross-attention cannot use the encoding {part!r}: it draws new positions for one "
                "sequence, but cross-attention relates two."
            )


def build_cross_encodings(
    options: PositionEncodingConfig, config: TransformerConfig
) -> list[PositionEncoding | None]:
    """Build the encoding of each decoder layer's attention to the encoder.

    Raises:
        ValueError: the encodings reject an option.
    """
    width, heads, head_dim = stack_widths(config, "decoder")
    context = EncodingContext(
        num_heads=heads,
        head_dim=head_dim,
        embed_dim=width,
        max_positions=max(config.max_source_positions, config.max_target_positions),
        begins_with_cls=False,
    )
    values = parse_options(options.position_encoding_options)
    name = options.position_encoding
    return build_model_encodings(name, config.decoder.layers, context, values).layers


def _check_absolute(name: str, side: str, *, off: bool, learned: bool, replaced: bool) -> None:
    """Check that the options of fairseq's own position embedding have an effect."""
    if off and any("embed" in get_entry(part).hooks for part in expand_name(name)):
        raise ValueError(
            "`no_token_positional_embeddings` must be False with an absolute position_encoding, "
            f"but is True with {name!r}; use position_encoding=none for no positions at all."
        )
    if learned and replaced:
        raise ValueError(
            f"`{side}_learned_pos` must be False where fairseq's own embedding is off or replaced, "
            f"but is True with position_encoding={name!r}; use position_encoding=learned."
        )


def rename_learned_table(state: dict[str, Any], stack: str, pad: int) -> None:
    """Convert the position table of fairseq's own models to the name and rows used here, in place.

    Its first rows, up to the padding index, belong to no position.

    Args:
        state: weights by name.
        stack: prefix of the stack's weights.
        pad: index of padding.
    """
    if (name := stack + THEIR_TABLE) in state:
        state[stack + OUR_TABLE] = state.pop(name)[pad + 1 :]


def upgrade_learned_table(stack: Any, state: dict[str, Any], name: str) -> None:
    """Convert the position table of fairseq's own models for a stack that has a learned one."""
    if type(stack.position_embedding) is Learned:
        rename_learned_table(state, f"{name}.", stack.padding_idx)


def install_input_encodings(stack: Any, encodings: ModelEncodings) -> None:
    """Replace fairseq's own position embedding by the encodings of layer inputs."""
    stack.embed_positions = None
    stack.position_sampler = encodings.position_sampler
    stack.position_embedding, *deeper = encodings.inputs
    stack.deeper_embeddings = nn.ModuleDict(
        {str(i): encoding for i, encoding in enumerate(deeper, 1) if encoding is not None}
    )
    for index in range(len(stack.layers)):
        # The layers' own index, since LayerDrop skips some at random.
        stack.layers[index].layer_index = index


def sample_positions(stack: Any, positions: Positions) -> Positions:
    """Return the positions that the encodings of a stack see; see ``draw_positions``."""
    index = draw_positions(stack.position_sampler, positions.index, training=stack.training)
    return replace(positions, index=index)


def encode_layer_input(
    stack: Any, layer: Any, x: Tensor, positions: Tensor, *, lengths: Tensor | None = None
) -> Tensor:
    """Apply the encoding of a layer's input, if there is one.

    Args:
        stack: a stack prepared by ``install_input_encodings``.
        layer: one of its layers.
        x: (T, B, C).
        positions: (B or 1, T).
        lengths: (B,), sequence lengths without padding, if known.

    Returns:
        (T, B, C).
    """
    if str(layer.layer_index) not in stack.deeper_embeddings:
        return x
    encoding = stack.deeper_embeddings[str(layer.layer_index)]
    return encoding.embed(x.transpose(0, 1), positions, lengths=lengths).transpose(0, 1)


def query_passes(stack: Any, layer: Any) -> int:
    """Return how often a layer updates queries over fixed keys and values; 0 for usual layers."""
    if str(layer.layer_index) not in stack.deeper_embeddings:
        return 0
    parts = stack.deeper_embeddings[str(layer.layer_index)].parts
    return max(getattr(part, "query_passes", 0) for part in parts)


@uncompiled(reason="whether a batch is padded decides which graph runs")
def has_padding(padding_mask: Tensor) -> bool:
    """Return whether a mask (B, T) hides anything; attention is cheaper without padding.

    This is the only synchronisation with the GPU per batch, and the only graph break of a compiled
    model, before the first layer.
    """
    return bool(padding_mask.any())


def with_activation_checkpointing(layer: nn.Module, config: TransformerConfig) -> nn.Module:
    """Wrap a layer to recompute activations in the backward pass, if the options ask for it.

    Offloading implies checkpointing; fairseq sets that itself only for translation models.
    """
    if not (config.checkpoint_activations or config.offload_activations):
        return layer
    wrapped: nn.Module = checkpoint_wrapper(layer, offload_to_cpu=config.offload_activations)
    return wrapped


def build_layer_attention(
    options: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    config: TransformerConfig,
    site: str,
) -> FairseqMultiheadAttention:
    """Build an attention of a layer.

    Args:
        options: options of its type.
        encoding: its encoding, or None.
        config: fairseq's options.
        site: one of ``ATTENTION_SITES``; ``cross`` is a decoder layer's attention to the encoder.
    """
    is_cross = site == "cross"
    width, heads, head_dim = stack_widths(config, "decoder" if is_cross else site)
    attention = build_model_attention(
        options,
        encoding,
        num_heads=heads,
        head_dim=head_dim,
        causal=site == "decoder",
        dropout=config.attention_dropout,
    )
    key_width = config.encoder.embed_dim if is_cross else width
    return FairseqMultiheadAttention(
        width,
        attention,
        kdim=key_width,
        vdim=key_width,
        encoder_decoder_attention=is_cross,
        q_noise=config.quant_noise.pq,
        qn_block_size=config.quant_noise.pq_block_size,
    )
