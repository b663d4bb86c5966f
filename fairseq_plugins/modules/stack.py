"""What fairseq's encoder and decoder share: which encodings a stack of layers gets."""

from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from fairseq_plugins.attention.multihead import PositionalMultiheadAttention
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import (
    EncodingContext,
    ModelEncodings,
    PositionEncoding,
    build_model_encodings,
    expand_name,
    get_entry,
    parse_options,
    with_absolute_embedding,
)
from fairseq_plugins.modules.options import PositionEncodingConfig, build_model_attention


def build_stack_encodings(
    options: PositionEncodingConfig,
    config: TransformerConfig,
    side: str,
    *,
    max_positions: int,
    vocab_size: int,
    base: str | None = None,
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

    Raises:
        ValueError: the width is no multiple of the heads, or what the encodings refuse.
    """
    stack = getattr(config, side)
    width, heads = stack.embed_dim, stack.attention_heads
    if width % heads:
        raise ValueError(
            f"`{side}_embed_dim` must be a multiple of {side}_attention_heads={heads}, "
            f"but is {width} instead."
        )
    given, off = options.position_encoding, config.no_token_positional_embeddings
    if base is not None:
        given = "+".join(base if part == "base" else part for part in expand_name(given))
    absolute = base or ("learned" if stack.learned_pos else "base")
    name = with_absolute_embedding(given, None if off else absolute)
    learned = stack.learned_pos and base is None
    _check_absolute(given, side, off=off, learned=learned, replaced=name == given)
    words = parse_options(options.position_encoding_options)
    if name != given and "+" not in given:
        words = {key if "." in key else f"{given}.{key}": value for key, value in words.items()}
    context = EncodingContext(
        num_heads=heads,
        head_dim=width // heads,
        embed_dim=width,
        max_positions=max_positions,
        causal=side == "decoder",
        vocab_size=vocab_size,
    )
    return build_model_encodings(name, stack.layers, context, words)


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


def register_inputs(stack: nn.Module, encodings: ModelEncodings) -> None:
    """Put what acts on the layers' inputs in place of fairseq's own embedding."""
    stack.embed_positions = None
    stack.position_embedding, *deeper = encodings.inputs
    stack.deeper_embeddings = nn.ModuleDict(
        {str(i): encoding for i, encoding in enumerate(deeper, 1) if encoding is not None}
    )
    for index in range(len(stack.layers)):
        # LayerDrop leaves out layers at random, so that counting those that run does not tell.
        stack.layers[index].layer_index = index


@torch.compiler.disable(reason="whether a batch is padded decides which graph runs")
def has_padding(padding_mask: Tensor) -> bool:
    """Whether a mask (B, T) hides anything; one without padding makes attention cheaper.

    The one question per batch that a GPU has to answer, and the one break in the graph of a
    compiled model, before the first layer.
    """
    return bool(padding_mask.any())


def build_self_attention(
    options: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    config: Any,
    side: str,
    shared: SharedPass,
    quant_noise: tuple[float, int],
) -> PositionalMultiheadAttention:
    """The self-attention of one layer; ``quant_noise`` is fairseq's (amount, block size)."""
    stack = getattr(config, side)
    attention = build_model_attention(
        options,
        encoding,
        attention_type=options.attention_type,
        num_heads=stack.attention_heads,
        head_dim=stack.embed_dim // stack.attention_heads,
        causal=side == "decoder",
        dropout=config.attention_dropout,
    )
    attention.shared = shared
    amount, block_size = quant_noise
    return PositionalMultiheadAttention(
        stack.embed_dim, attention, q_noise=amount, qn_block_size=block_size
    )
