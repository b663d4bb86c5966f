"""Vectors and scores that an encoding adds, without a model."""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.softmax_inputs import RecordedSoftmax
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.encodings import (
    EncodingContext,
    ModelEncodings,
    PositionEncoding,
    build_model_encodings,
    expand_name,
    get_entry,
)
from fairseq_plugins.encodings.base import overridden_hooks

HEADS, WIDTH = 2, 32
WORD = 1  # the token that a sentence repeats
VOCABULARY = 2


def embeds(name: str) -> bool:
    """Return whether an encoding, or a part of it, acts on the token embeddings."""
    parts = [get_entry(part) for part in expand_name(name)]
    classes = [cls for part in parts for cls in part.classes]
    return any(
        "embed" in overridden_hooks(cls) and not getattr(cls, "query_passes", 0) for cls in classes
    )


def build_plain(
    name: str,
    *,
    width: int = WIDTH,
    heads: int = HEADS,
    longest: int = 128,
    seed: int = 1,
    **options: Any,
) -> ModelEncodings:
    """Build the encodings of one bidirectional layer without a model, from the seed alone.

    Args:
        name: name of an encoding, or of several as in "learned+t5".
        width: C, features of a token.
        heads: H, number of heads.
        longest: longest sequence.
        seed: seed of random encodings and initial values.
        options: options of the encoding.

    Raises:
        ValueError: an unknown name, or an invalid option.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        context = EncodingContext(
            num_heads=heads,
            head_dim=width // heads,
            embed_dim=width,
            max_positions=longest,
            vocab_size=VOCABULARY,
            generator=torch.Generator().manual_seed(seed),
        )
        return build_model_encodings(name, 1, context, options)


@torch.no_grad()
def input_rows(encoding: PositionEncoding, length: int, *, seed: int | None = 1) -> Tensor:
    """Return the vectors added to a sentence that repeats one word: (T, C) float64.

    For an encoding that changes the embedding instead of adding to it, this is the difference.

    Args:
        encoding: an encoding of token embeddings.
        length: T.
        seed: seed of the word's embedding; None for zeros.
    """
    width, like = encoding.context.embed_dim, next(encoding.parameters(), torch.zeros(()))
    word = torch.zeros(width)
    if seed is not None:
        word = torch.randn(width, generator=torch.Generator().manual_seed(seed))
    x = word.to(like).expand(1, length, width)
    positions = torch.arange(length, device=like.device).unsqueeze(0)
    tokens, lengths = torch.full_like(positions, WORD), positions.new_tensor([length])
    found = encoding.embed(x, positions, lengths=lengths, tokens=tokens)
    return (found - x)[0].double().cpu()


@torch.no_grad()
def added_scores(encodings: ModelEncodings, length: int, *, seed: int = 1) -> Tensor:
    """Compute the scores of one word with itself under an encoding inside the attention.

    Args:
        encodings: the encodings; the first layer's attention is used.
        length: T.
        seed: seed of the word's query and key.

    Returns:
        (T, T) float64, scores before the softmax, averaged over heads.

    Raises:
        ValueError: the encodings do not act inside the attention.
    """
    encoding = encodings.layers[0]
    if encoding is None:
        raise ValueError("`encodings` must act inside the attention, but do not.")
    heads, dim = encoding.context.num_heads, encoding.context.head_dim
    draw = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 1, heads, 1, dim, generator=draw)
    attention = SoftmaxAttention(encoding, num_heads=heads, head_dim=dim, causal=False).eval()
    positions = torch.arange(length).unsqueeze(0)
    q, k = (vector.expand(1, heads, length, dim) for vector in (query, key))
    with RecordedSoftmax() as recorded:
        attention(q, k, k, q_positions=positions, k_positions=positions, need_weights=True)
    ((scores, _),) = recorded.found
    return scores[0].mean(0).double()
