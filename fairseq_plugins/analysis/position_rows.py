"""The vectors that an encoding adds, position by position, without a model."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.softmax_inputs import softmax_of
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
    """An encoding as a bidirectional layer without a model has it, drawn by the seed alone.

    Args:
        name: of an encoding, or several as in "learned+t5".
        width: C, the features of a token; each head has its share.
        heads: of the attention.
        longest: sequence that it is built for.
        seed: of what it draws.
        options: of the encoding.

    Raises:
        ValueError: an unknown name or option, or what the encoding refuses.
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

    An encoding that does not add, but changes what is there, changes the same word everywhere.

    Args:
        encoding: acts on the token embeddings.
        length: T.
        seed: of the word's embedding; None for one of zeros.
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


def rows_of_length(encodings: ModelEncodings, length: int, *, seed: int = 1) -> Tensor:
    """Return the first layer's inputs in a stack, as `input_rows` does.

    Raises:
        ValueError: an encoding that does not act on the inputs.
    """
    encoding = encodings.inputs[0]
    if encoding is None:
        raise ValueError("`encodings` must act on the inputs of the first layer, but do not.")
    return input_rows(encoding, length, seed=seed)


def rows_by_length(
    encodings: ModelEncodings, lengths: Iterable[int], *, seed: int = 1
) -> dict[int, Tensor]:
    """Return the rows (T, C) of each length, as `rows_of_length` has them."""
    return {length: rows_of_length(encodings, length, seed=seed) for length in lengths}


@torch.no_grad()
def added_scores(encodings: ModelEncodings, length: int, *, seed: int = 1) -> Tensor:
    """Return how an encoding inside the attention changes the scores of one word with itself.

    Args:
        encodings: of which the first layer's attention is asked.
        length: T.
        seed: of the word's query and key.

    Returns:
        (T, T) float64, the mean over heads of the scores before the softmax.

    Raises:
        ValueError: an encoding that does not act inside the attention.
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
    found: list[tuple[Tensor, Tensor]] = []
    with softmax_of(attention, found):
        attention(q, k, k, q_positions=positions, k_positions=positions, need_weights=True)
    ((scores, _),) = found
    return scores[0].mean(0).double()
