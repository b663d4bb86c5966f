"""What fairseq's encoder and decoder share: which encodings a stack of layers gets."""

from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_plugins.attention import Attention
from fairseq_plugins.attention import base as attention_base
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
from fairseq_plugins.encodings.position_bounds import known_end
from fairseq_plugins.modules.naming import name_stack
from fairseq_plugins.modules.options import PositionEncodingConfig, build_model_attention


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
    """The encodings of a stack; the absolute embedding stays on as in the LRPE paper.

    Args:
        options: name and options of the encoding.
        config: fairseq's.
        side: ``decoder``, which is causal, or ``encoder``.
        max_positions: longest sequence.
        vocab_size: symbols of the dictionary.
        base: what the name ``base`` stands for in a model whose framework has another embedding
            than a sinusoidal one, with or without a relative encoding.
        begins_with_cls: see ``EncodingContext``.
        token_std: of the token embeddings as they are drawn; by default as fairseq draws them.

    Raises:
        ValueError: the width is no multiple of the heads, or what the encodings refuse.
    """
    stack = getattr(config, side)
    width, heads, head_dim = widths_of(config, side)
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


def widths_of(config: TransformerConfig, side: str) -> tuple[int, int, int]:
    """Width, heads and features per head of a stack.

    Raises:
        ValueError: the width is no multiple of the heads.
    """
    width, heads = getattr(config, side).embed_dim, getattr(config, side).attention_heads
    if width % heads:
        raise ValueError(
            f"`{side}_embed_dim` must be a multiple of {side}_attention_heads={heads}, "
            f"but is {width} instead."
        )
    return width, heads, width // heads


def check_cross_encoding(name: str) -> None:
    """Refuse for cross-attention what acts elsewhere.

    Raises:
        IncompatibleEncodingError: an encoding that acts on the input of a stack.
        ValueError: an unknown name.
    """
    for part in expand_name(name):
        if "embed" in get_entry(part).hooks:
            raise IncompatibleEncodingError(
                f"cross-attention cannot use the encoding {part!r}: its hook `embed` acts on the "
                "input of a stack of layers, and cross-attention has none of its own."
            )
        if hasattr(get_entry(part).cls, "reposition"):
            raise IncompatibleEncodingError(
                f"cross-attention cannot use the encoding {part!r}: it draws the positions of one "
                "sequence, and those of the other would keep theirs."
            )


def build_cross_encodings(
    options: PositionEncodingConfig, config: TransformerConfig
) -> list[PositionEncoding | None]:
    """For each layer of the decoder the encoding of its attention to the encoder.

    Raises:
        ValueError: as ``check_cross_encoding``, or what the encodings refuse.
    """
    check_cross_encoding(options.position_encoding)
    width, heads, head_dim = widths_of(config, "decoder")
    context = EncodingContext(
        num_heads=heads,
        head_dim=head_dim,
        embed_dim=width,
        max_positions=max(config.max_source_positions, config.max_target_positions),
        begins_with_cls=False,
    )
    words = parse_options(options.position_encoding_options)
    name = options.position_encoding
    return build_model_encodings(name, config.decoder.layers, context, words).layers


def _check_absolute(name: str, side: str, *, off: bool, learned: bool, replaced: bool) -> None:
    """Refuse fairseq's options of its own embedding where they would be ignored."""
    if off and any("embed" in get_entry(part).hooks for part in expand_name(name)):
        raise ValueError(
            "`no_token_positional_embeddings` must be False with an absolute position_encoding, "
            f"but is True with {name!r}; position_encoding=none has no position at all."
        )
    if learned and replaced:
        raise ValueError(
            f"`{side}_learned_pos` must be False where fairseq's own embedding is off or replaced, "
            f"but is True with position_encoding={name!r}; position_encoding=learned is a table."
        )


def register_inputs(stack: Any, encodings: ModelEncodings) -> None:
    """Put what acts on the layers' inputs in place of fairseq's own embedding."""
    stack.embed_positions = None
    stack.position_sampler = encodings.position_sampler
    stack.position_embedding, *deeper = encodings.inputs
    stack.deeper_embeddings = nn.ModuleDict(
        {str(i): encoding for i, encoding in enumerate(deeper, 1) if encoding is not None}
    )
    for index in range(len(stack.layers)):
        # LayerDrop leaves out layers at random, so that counting those that run does not tell.
        stack.layers[index].layer_index = index


def with_sampled_positions(stack: Any, positions: Positions) -> Positions:
    """The positions that the encodings of a stack are given.

    In training drawn ones, where a name draws them: one draw for all layers and sentences.
    """
    if stack.position_sampler is None or not stack.training:
        return positions
    stack.position_sampler.redraw(attention_base.draw_seed())
    index = stack.position_sampler.reposition(positions.index)
    end = known_end(index)
    assert end is not None
    return Positions(index, end, positions.padding_mask, positions.shared)


def embed_deeper(
    stack: Any,
    layer: Any,
    x: Tensor,
    positions: Tensor,
    *,
    lengths: Tensor | None = None,
) -> Tensor:
    """The input of a layer with what acts on it beyond the token embeddings.

    Args:
        stack: as ``register_inputs`` left it.
        layer: one of its layers.
        x: (T, B, C).
        positions: (B or 1, T).
        lengths: (B,), the true lengths where they are known.

    Returns:
        (T, B, C).
    """
    if str(layer.layer_index) not in stack.deeper_embeddings:
        return x
    encoding = stack.deeper_embeddings[str(layer.layer_index)]
    return encoding.embed(x.transpose(0, 1), positions, lengths=lengths).transpose(0, 1)


def query_passes(stack: Any, layer: Any) -> int:
    """How often a layer runs over keys and values that stay; 0 where it runs as any other."""
    if str(layer.layer_index) not in stack.deeper_embeddings:
        return 0
    parts = stack.deeper_embeddings[str(layer.layer_index)].parts
    return max(getattr(part, "query_passes", 0) for part in parts)


@torch.compiler.disable(reason="whether a batch is padded decides which graph runs")
def has_padding(padding_mask: Tensor) -> bool:
    """Whether a mask (B, T) hides anything; one without padding makes attention cheaper.

    The one question per batch that a GPU has to answer, and the one break in the graph of a
    compiled model, before the first layer.
    """
    return bool(padding_mask.any())


def checkpointed(layer: nn.Module, config: TransformerConfig) -> nn.Module:
    """A layer, computed again in backward where options say so; to offload implies that."""
    # fairseq's constructor of translation models says so, those of its others do not.
    if not (config.checkpoint_activations or config.offload_activations):
        return layer
    wrapped: nn.Module = checkpoint_wrapper(layer, offload_to_cpu=config.offload_activations)
    return wrapped


def build_self_attention(
    options: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    config: TransformerConfig,
    side: str,
    quant_noise: tuple[float, int],
) -> FairseqMultiheadAttention:
    """The self-attention of one layer; ``quant_noise`` is fairseq's (amount, block size)."""
    causal = side == "decoder"
    attention = _build_attention(options, encoding, config, side, causal=causal)
    amount, block_size = quant_noise
    return FairseqMultiheadAttention(
        getattr(config, side).embed_dim, attention, q_noise=amount, qn_block_size=block_size
    )


def build_cross_attention(
    options: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    config: TransformerConfig,
    quant_noise: tuple[float, int],
) -> FairseqMultiheadAttention:
    """A decoder layer's attention to the encoder, which sees all of it."""
    attention = _build_attention(options, encoding, config, "decoder", causal=False)
    amount, block_size = quant_noise
    return FairseqMultiheadAttention(
        config.decoder.embed_dim,
        attention,
        kdim=config.encoder.embed_dim,
        vdim=config.encoder.embed_dim,
        encoder_decoder_attention=True,
        q_noise=amount,
        qn_block_size=block_size,
    )


def _build_attention(
    options: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    config: TransformerConfig,
    side: str,
    *,
    causal: bool,
) -> Attention:
    _, heads, head_dim = widths_of(config, side)
    return build_model_attention(
        options,
        encoding,
        attention_type=options.attention_type,
        num_heads=heads,
        head_dim=head_dim,
        causal=causal,
        dropout=config.attention_dropout,
    )
