"""Words as waves: amplitude, frequency and phase per word."""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import (
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
    widened,
)
from fairseq_plugins.encodings.checks import check_even
from fairseq_plugins.encodings.frequencies import geometric, learned_from
from fairseq_plugins.encodings.position_bounds import check_not_negative
from fairseq_plugins.encodings.registry import register_encoding


def waves(x: Tensor, frequencies: Tensor, positions: Tensor) -> Tensor:
    """Return [r cos(w s + theta), r sin(w s + theta)] for x = [r, theta].

    Args:
        x: (B, T, C), amplitudes in the first half of the features and phases in the second.
        frequencies: w (B, T, C/2).
        positions: s (B or 1, T).

    Returns:
        (B, T, C): real parts, then imaginary parts.
    """
    amplitude, phase = widened(x).chunk(2, dim=-1)
    # In float64, and reduced to one turn: at position 10,000 a float32 product is off by 1e-3.
    turned = (frequencies.double() * positions.unsqueeze(-1)).remainder(2 * math.pi)
    angle = turned.to(phase.dtype) + phase
    return torch.cat((amplitude * angle.cos(), amplitude * angle.sin()), dim=-1).to(x.dtype)


@register_encoding(
    "complex_order",
    known_as=("complex",),
    summary="each word as a wave over positions, with its own amplitude, frequency and phase",
    source="Wang et al. 2020; Su's survey, Complex",
    formula="r_j exp(i (w_j s + theta_j)) of word j, as [real; imaginary]",
)
class ComplexOrder(PositionEncoding):
    """r_j exp(i (w_j s + theta_j)) for word j at position s, C/2 complex features as C real ones.

    The word's ordinary embedding holds the amplitudes r (first half) and the phases theta (second
    half); the frequencies w are a learned table (vocab_size, C/2). For every word they start at
    those of the sinusoidal encoding, 10000^(-2j/C), since with frequencies of zero an embedding
    would not depend on the position. Layers are complex too in the paper, as
    ``fairseq_plugins.attention.ComplexEncoderLayer`` is; those of the models here are real.

    Raises:
        ValueError: for an odd embed_dim.
        IncompatibleEncodingError: without ``vocab_size``.
    """

    keeps_absolute_embedding = False
    shared_across_layers = True
    is_relative = False

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        check_even("embed_dim", context.embed_dim)
        if context.vocab_size is None:
            raise IncompatibleEncodingError(
                "complex_order has frequencies for every word, so it needs the size of the "
                "dictionary: give `vocab_size` to `build_encoding` or `EncodingContext`."
            )
        frequencies = learned_from(geometric(context.embed_dim // 2, context.embed_dim))
        self.frequencies = nn.Parameter(frequencies.repeat(context.vocab_size, 1))

    def embed(
        self, x: Tensor, positions: Tensor, *, tokens: Tensor | None = None, **_: Tensor | None
    ) -> Tensor:
        """Map [r; theta] to [r cos; r sin]: (B, T, C) -> (B, T, C), words from ``tokens`` (B, T).

        Raises:
            ValueError: without ``tokens``.
        """
        if tokens is None:
            raise ValueError(
                "`tokens` must be the token ids (B, T), whose frequencies complex_order looks up, "
                "but is None instead."
            )
        check_not_negative(self.label, positions)
        return waves(x, nn.functional.embedding(tokens, self.frequencies), positions)
