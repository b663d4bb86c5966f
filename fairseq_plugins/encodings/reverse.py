"""Sinusoids of the distance to the sequence's end, or of its length.

As in the paper, vectors are forward-aware if some features depend only on the distance from the
sequence's start, and backward-aware if some depend only on the distance to its end.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fairseq_plugins.encodings.absolute import Scale, Sinusoidal
from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding
from fairseq_plugins.encodings.position_bounds import (
    check_not_negative,
    known_end,
    with_end,
    with_end_of,
)
from fairseq_plugins.encodings.registry import register_encoding


def to_end(positions: Tensor, lengths: Tensor) -> Tensor:
    """Return l - 1 - s, the number of later tokens: (B or 1, T), (B,) -> (B, T); 0 in padding."""
    distances = (lengths.unsqueeze(-1) - 1 - positions).clamp(min=0)
    return with_end_of(distances, positions)


class LengthAware(PositionEncoding):
    """Base class: a vector per position and length, added to the token embeddings.

    Each of its ``slices`` is a sinusoid as in ``sinusoidal``, with ``embed_dim / slices`` features,
    an even number.

    Args:
        scale: as in ``sinusoidal``.

    Raises:
        ValueError: for an embed_dim that is no multiple of 2 * slices.
    """

    keeps_absolute_embedding = False
    shared_across_layers = True
    is_relative = False
    needs_lengths = True
    causal_refusal = "it needs the sequence's length, which lies in the future of every token"
    slices = 1

    def __init__(self, context: EncodingContext, *, scale: Scale = "tokens") -> None:
        super().__init__(context)
        multiple = 2 * self.slices
        if context.embed_dim % multiple:
            raise ValueError(
                f"`embed_dim` must be a multiple of {multiple}, but is {context.embed_dim} instead."
            )
        narrower = replace(context, embed_dim=context.embed_dim // self.slices)
        self.sinusoid = Sinusoidal(narrower, scale=scale)

    def rows(self, positions: Tensor, lengths: Tensor) -> Tensor:
        """Return the vectors: (B or 1, T), (B,) -> (B, T, C) float32."""
        raise NotImplementedError

    def embed(
        self, x: Tensor, positions: Tensor, *, lengths: Tensor | None = None, **_: Tensor | None
    ) -> Tensor:
        """Add p to x: (B, T, C) -> (B, T, C), for lengths (B,) without padding.

        Raises:
            ValueError: without ``lengths``.
        """
        if lengths is None:
            raise ValueError(
                f"`lengths` must be the true lengths (B,), which {self.label} needs, "
                "but is None instead."
            )
        check_not_negative(self.label, positions)
        return x + self.rows(positions, lengths).to(x.dtype)


@register_encoding(
    "rspe",
    known_as=("reverse",),
    summary="the sinusoid of the distance to the end, added to the tokens",
    source="Dual positional encoding, RSPE",
    formula="x_s + SPE(l - 1 - s), SPE as `sinusoidal`, l the length",
)
class ReverseSinusoidal(LengthAware):
    """The sinusoid of l - 1 - s: backward-aware, not forward-aware."""

    def rows(self, positions: Tensor, lengths: Tensor) -> Tensor:
        return self.sinusoid.rows(to_end(positions, lengths))


@register_encoding(
    "aspe",
    summary="the sum of the forward sinusoid and the reverse one, added to the tokens",
    source="Dual positional encoding, Appendix E, Eq. 16 and 17",
    formula="x_s + [sin(w s) + cos(w (l-1-s)), cos(w s) + sin(w (l-1-s)), ...]",
)
class AddedSinusoidal(LengthAware):
    """SPE plus RSPE, neither forward- nor backward-aware.

    Eq. 16 exchanges sine and cosine in the reverse part of the sum; otherwise tokens s and
    l - 1 - s would have the same vector. As complex numbers, pairs of features are those of SPE
    times 1 - i exp(i w (l - 1)): for each length ASPE is a linear function of SPE, but not the same
    for all lengths.

    Corrected misprints: the last term of the cosine features in Eq. 18 has a minus, which Eq. 19
    to 21 inherit; the last product in Eq. 20 is sin X cos Y; and Eq. 23 is, with the paper's A and
    D, P_{x+y,2i} = (A - cos(L) D / (1 + sin L)) / 2 and P_{x+y,2i+1} = (D + cos(L) A /
    (1 + sin L)) / 2. The statement of Eq. 23, that the coefficients depend on L, holds.
    """

    def rows(self, positions: Tensor, lengths: Tensor) -> Tensor:
        reverse = self.sinusoid.rows(to_end(positions, lengths))
        exchanged = reverse.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return self.sinusoid.rows(positions) + exchanged


@register_encoding(
    "dpe",
    known_as=("dual",),
    summary="half forward sinusoid, half reverse one, added to the tokens",
    source="Dual positional encoding, DPE",
    formula="x_s + [SPE(s), SPE(l - 1 - s)], each of C/2 features, l the length",
)
class Dual(LengthAware):
    """The sinusoid of s in the first half of the features, of l - 1 - s in the second.

    It is forward- and backward-aware. Each half has the frequencies of C/2 features, as in Eq. 24.
    """

    slices = 2

    def rows(self, positions: Tensor, lengths: Tensor) -> Tensor:
        reverse = self.sinusoid.rows(to_end(positions, lengths))
        return torch.cat((self.sinusoid.rows(positions).expand_as(reverse), reverse), dim=-1)


@register_encoding(
    "2dspe",
    summary="half sinusoid of the position, half of the length, added to the tokens",
    source="Dual positional encoding, Eq. 24",
    formula="x_s + [SPE(s), SPE(l)], each of C/2 features, l the length",
)
class TwoDimensional(LengthAware):
    """The sinusoid of s in the first half of the features, of the length in the second.

    It is forward-aware; no slice of it is the distance to the end.
    """

    slices = 2

    def rows(self, positions: Tensor, lengths: Tensor) -> Tensor:
        end = known_end(positions)
        # A length is one more than the last position.
        ends = with_end(lengths.unsqueeze(-1), None if end is None else end + 1)
        of_length = self.sinusoid.rows(ends)
        rows = self.sinusoid.rows(positions)
        shape = (lengths.size(0), positions.size(1), rows.size(-1))
        return torch.cat((rows.expand(shape), of_length.expand(shape)), dim=-1)
