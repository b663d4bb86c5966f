"""Absolute encodings: position vectors that are added to the token embeddings."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, at_least_float32
from fairseq_plugins.encodings.checks import check_at_least, check_even
from fairseq_plugins.encodings.frequencies import (
    fairseq_frequencies,
    fixed_sinusoids,
    learned_from,
    sinusoidal_frequencies,
    sinusoids,
)
from fairseq_plugins.encodings.position_bounds import check_not_negative
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Formula, PositionTable, check_within_table


@register_encoding(
    "none",
    known_as=("nope", "no", "off"),
    summary="no position encoding",
    source="NoPE (Kazemnejad et al. 2024); Gu et al. 2025, NoPE",
    formula="x_s stays x_s",
)
class NoEncoding(PositionEncoding):
    """No encoding: a model then knows the order of tokens from the causal mask alone."""

    keeps_absolute_embedding = False
    reads_positions = False


class Absolute(PositionEncoding):
    """A vector per position, added to the token embeddings in place of the framework's own."""

    keeps_absolute_embedding = False
    shared_across_layers = True
    is_relative = False

    def rows(self, positions: Tensor) -> Tensor:
        """Return the vectors p_s: (B or 1, T) -> (B or 1, T, C) float32."""
        raise NotImplementedError

    def embed(self, x: Tensor, positions: Tensor, **_: Tensor | None) -> Tensor:
        """Add p to x: (B, T, C) -> (B, T, C)."""
        return x + self.rows(positions).to(x.dtype)


@register_encoding(
    "base",
    known_as=("absolute", "fairseq"),
    summary="fairseq's own sinusoidal embedding, added to the tokens",
    source="fairseq; row Base of LRPE, Table 2",
    formula="x_s + [sin(w (s + 2)), cos(w (s + 2))], w_j = 10000^(-j/(C/2 - 1))",
)
class FairseqSinusoidal(Absolute):
    """Sines in the first half of the features and cosines in the second.

    Frequencies are 10000^(-i / (C/2 - 1)), and position s is embedded as s + 2, since fairseq
    counts from the padding index on (1 in its dictionaries). An odd C ends in a zero.

    Raises:
        ValueError: for an embed_dim below 4, where the frequencies' exponent is undefined.
    """

    OFFSET = 2

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        check_at_least(4, "embed_dim", context.embed_dim)
        self.table = PositionTable(Formula(_fairseq_sinusoids, (context.embed_dim, self.OFFSET)))

    def rows(self, positions: Tensor) -> Tensor:
        return self.table(positions, self.label)


def _fairseq_sinusoids(positions: Tensor, dim: int, offset: int) -> Tensor:
    """Return fairseq's sinusoids: (...) -> (..., dim); the last feature of an odd dim is 0."""
    frequencies = fairseq_frequencies(dim, positions.device)
    angles = (positions + offset).unsqueeze(-1) * frequencies
    rows = torch.cat((angles.sin(), angles.cos()), dim=-1)
    return nn.functional.pad(rows, (0, dim % 2))


Scale = Literal["tokens", "one"]


class Sines(Absolute):
    """Interleaved sines and cosines, optionally scaled to the size of the token embeddings.

    Their root mean square is sqrt(1/2). Token embeddings that are multiplied by sqrt(C) are as
    large; others begin at a few hundredths, and unscaled sines would drown them
    (``EncodingContext.token_std``). A factor other than 1 is in the state dict; checkpoints
    without it have unscaled sines.

    Args:
        scale: see ``Sinusoidal``.
    """

    scale: Tensor | None

    def __init__(self, context: EncodingContext, *, scale: Scale = "tokens") -> None:
        super().__init__(context)
        self.register_buffer("scale", None)
        if scale == "tokens" and context.token_std is not None:
            self.scale_to(context.token_std)

    def scale_to(self, token_std: float | None) -> None:
        """Scale to tokens of this standard deviation; None is unscaled."""
        factor = 1.0 if token_std is None else math.sqrt(2) * token_std
        self.scale = torch.tensor(factor, dtype=torch.float32)

    def sines(self, positions: Tensor) -> Tensor:
        """Return [sin(w_1 s), cos(w_1 s), ...]: (B or 1, T) -> (B or 1, T, C) float32."""
        raise NotImplementedError

    def rows(self, positions: Tensor) -> Tensor:
        rows = self.sines(positions)
        return rows if self.scale is None else self.scale * rows

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        if self.scale is not None:
            state_dict.setdefault(f"{prefix}scale", torch.ones_like(self.scale))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


@register_encoding(
    "sinusoidal",
    known_as=("absolute", "fixed", "sine", "sincos", "vaswani"),
    summary="sines and cosines of geometric frequencies, interleaved, added to the tokens",
    source="Vaswani et al. 2017; Gu et al. 2025, Eq. 5",
    formula="x_s + a [sin(w_1 s), cos(w_1 s), sin(w_2 s), ...], w_j = 10000^(-2(j-1)/C), "
    "a = 1 or by the tokens' size",
)
class Sinusoidal(Sines):
    """p_s = [sin(w_1 s), cos(w_1 s), sin(w_2 s), ...], w_i = 10000^(-2(i-1)/C).

    In a model that does not multiply its token embeddings by sqrt(C), such as RoBERTa, p_s is
    scaled to their size, since unscaled sines would be 35 times as large. The factor is in the
    checkpoint; older checkpoints without one have unscaled sines.

    Args:
        scale: ``tokens``, scaled to the initial size of the token embeddings, unless those are
            multiplied by sqrt(C); ``one``, unscaled in every model.

    Raises:
        ValueError: for an odd embed_dim.
    """

    def __init__(self, context: EncodingContext, *, scale: Scale = "tokens") -> None:
        super().__init__(context, scale=scale)
        check_even("embed_dim", context.embed_dim)
        self.table = PositionTable(Formula(fixed_sinusoids, (context.embed_dim,)))

    def sines(self, positions: Tensor) -> Tensor:
        return self.table(positions, self.label)


@register_encoding(
    "learnable_sinusoidal",
    summary="sines and cosines of learned frequencies, interleaved, added to the tokens",
    source="Position Embeddings in BERT, Table 1",
    formula="x_s + a [sin(w_1 s), cos(w_1 s), sin(w_2 s), ...], w learned, a as in sinusoidal",
)
class LearnableSinusoidal(Sines):
    """``sinusoidal`` with C/2 learned frequencies, which start at those of ``sinusoidal``.

    Args:
        scale: as in ``sinusoidal``; it is not learned.

    Raises:
        ValueError: for an odd embed_dim.
    """

    def __init__(self, context: EncodingContext, *, scale: Scale = "tokens") -> None:
        super().__init__(context, scale=scale)
        check_even("embed_dim", context.embed_dim)
        self.frequencies = nn.Parameter(learned_from(sinusoidal_frequencies(context.embed_dim)))

    def sines(self, positions: Tensor) -> Tensor:
        check_not_negative(self.label, positions)
        return sinusoids(positions, self.frequencies).to(at_least_float32(self.frequencies))


@register_encoding(
    "learned",
    known_as=("absolute", "learnable", "trainable", "embedding", "bert", "gpt"),
    summary="one learned vector per position, added to the tokens",
    source="GPT, BERT; Gu et al. 2025, Learnable PE",
    formula="x_s + p_s, a learned vector per position",
)
class Learned(Absolute):
    """A table of ``max_positions`` vectors drawn from N(0, 1/C), as fairseq draws its own."""

    extrapolates = False

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        weight = torch.randn(context.max_positions, context.embed_dim, generator=context.generator)
        self.weight = nn.Parameter(weight * context.embed_dim**-0.5)

    def rows(self, positions: Tensor) -> Tensor:
        """Return the vectors p_s: (B or 1, T) -> (B or 1, T, C).

        Raises:
            ValueError: for a position beyond the table.
        """
        check_within_table(self.label, positions, self.context.max_positions)
        return self.weight[positions]
