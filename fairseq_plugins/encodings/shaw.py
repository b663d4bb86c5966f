"""Relative position vectors, one per clipped offset, for keys and optionally values."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, at_least_float32
from fairseq_plugins.encodings.checks import check_even
from fairseq_plugins.encodings.clipping import ClippedOffsets
from fairseq_plugins.encodings.frequencies import (
    Device,
    fixed_sinusoids,
    learned_from,
    sinusoidal_frequencies,
    sinusoids,
)
from fairseq_plugins.encodings.offsets import gather_columns, sum_columns
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Constant, Formula


class RelativeKeys(ClippedOffsets):
    """Base class: q_s . a_{clip(t - s)} is added to q_s . k_t (LRPE, Eq. 32).

    Heads and layers share the vectors a, which a subclass provides.
    """

    def key_vectors(self, like: Tensor) -> Tensor:
        """Return the vectors a for offsets -max_distance..max_distance: (2 max_distance + 1, D).

        They are on the device of ``like``.
        """
        raise NotImplementedError

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """Return q.a (B, H, T, S) from products (B, H, T, 2k + 1), without a tensor (T, S, D)."""
        per_offset = q @ self.key_vectors(q).to(q.dtype).mT
        return gather_columns(per_offset, self.index(q_positions, k_positions))


class RelativeVectors(RelativeKeys):
    """Base class that also adds sum_t w_st c_{clip(t - s)} to the output, w the weights."""

    def value_vectors(self, like: Tensor) -> Tensor:
        """Return the vectors c, by default ``key_vectors``."""
        return self.key_vectors(like)

    def relative_values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return sum_t w_st c_{t-s}: (B, H, T, S) -> (B, H, T, D), summing w per offset first."""
        vectors = self.value_vectors(weights).to(weights.dtype)
        index = self.index(q_positions, k_positions)
        return sum_columns(weights, index, vectors.size(0)) @ vectors


def _draw(encoding: ClippedOffsets) -> nn.Parameter:
    """Draw vectors (2 max_distance + 1, D), Glorot uniform."""
    rows, dim = 2 * encoding.max_distance + 1, encoding.context.head_dim
    bound = (6.0 / (rows + dim)) ** 0.5
    draws = torch.rand(rows, dim, generator=encoding.context.generator)
    return nn.Parameter((2 * draws - 1) * bound)


@register_encoding(
    "shaw_keys",
    summary="a learned vector per clipped offset, added to the keys alone",
    source="LRPE, Eq. 32, after Shaw et al. 2018",
    formula="q_s.(k_t + a_(t-s)) / sqrt(D), t - s clipped",
)
class ShawKeys(RelativeKeys):
    """q_s . a_{clip(t - s)} is added to q_s . k_t; heads and layers share the learned a."""

    def __init__(self, context: EncodingContext, *, max_distance: int = 64) -> None:
        super().__init__(context, max_distance=max_distance)
        self.key_table = _draw(self)

    def key_vectors(self, like: Tensor) -> Tensor:
        return self.key_table


@register_encoding(
    "shaw",
    known_as=("relative", "rpe"),
    summary="a learned vector per clipped offset, added to the keys and to the values",
    source="Shaw et al. 2018, Eq. 3 and 4; LRPE, Eq. 32; Position Embeddings in BERT",
    formula="logit q_s.(k_t + a_(t-s)) / sqrt(D), output sum_t w_st (v_t + c_(t-s)), t - s clipped",
)
def shaw(
    context: EncodingContext, *, max_distance: int = 64, values: bool = True
) -> "Shaw | ShawKeys":
    """q_s . a^K_{clip(t - s)} is added to q_s . k_t, sum_t w_st a^V_{clip(t - s)} to the output.

    Heads and layers share the learned tables.

    Args:
        context: of the model.
        max_distance: offsets are clipped to -max_distance..max_distance; 64 in the BERT paper.
        values: also add vectors to the values; without it, ``shaw_keys``.

    Raises:
        ValueError: for a ``max_distance`` below 1.
    """
    return (Shaw if values else ShawKeys)(context, max_distance=max_distance)


class Shaw(RelativeVectors, ShawKeys):
    """``shaw`` with a^K for keys and a^V for values."""

    def __init__(self, context: EncodingContext, *, max_distance: int = 64) -> None:
        super().__init__(context, max_distance=max_distance)
        self.value_table = _draw(self)

    def value_vectors(self, like: Tensor) -> Tensor:
        return self.value_table


def _offsets(max_distance: int, device: Device = None) -> Tensor:
    """Return -max_distance..max_distance: (2 max_distance + 1,) float64."""
    return torch.arange(-max_distance, max_distance + 1, dtype=torch.float64, device=device)


def _sinusoids_of_offsets(max_distance: int, dim: int, device: Device = None) -> Tensor:
    """Return the sinusoids of all offsets: (2 max_distance + 1, dim) float64."""
    return fixed_sinusoids(_offsets(max_distance, device), dim)


@register_encoding(
    "sinusoidal_rpe",
    known_as=("nezha",),
    summary="the sinusoid of the clipped offset, added to the keys and to the values",
    source="NEZHA (Wei et al. 2019); Position Embeddings in BERT, Table 1",
    formula="shaw with a_r = c_r = [sin(w_1 r), cos(w_1 r), ...], w_j = 10000^(-2(j-1)/D)",
)
def sinusoidal_rpe(
    context: EncodingContext, *, max_distance: int = 64, values: bool = True
) -> "SinusoidalVectors | SinusoidalKeys":
    """``shaw`` with one fixed table: r = clip(t - s) becomes [sin(w_1 r), cos(w_1 r), ...].

    Keys, values, heads and layers all use the same vectors.

    Args:
        context: of the model.
        max_distance: offsets are clipped to -max_distance..max_distance; 64 in the BERT paper.
        values: also add the vectors to the values, as both papers do.

    Raises:
        ValueError: for a ``max_distance`` below 1 or an odd head_dim.
    """
    return (SinusoidalVectors if values else SinusoidalKeys)(context, max_distance=max_distance)


class SinusoidalKeys(RelativeKeys):
    """``sinusoidal_rpe`` for keys."""

    def __init__(self, context: EncodingContext, *, max_distance: int = 64) -> None:
        super().__init__(context, max_distance=max_distance)
        check_even("head_dim", context.head_dim)
        self.vectors = Constant(Formula(_sinusoids_of_offsets, (max_distance, context.head_dim)))

    def key_vectors(self, like: Tensor) -> Tensor:
        return self.vectors.on(like)


class SinusoidalVectors(RelativeVectors, SinusoidalKeys):
    """``sinusoidal_rpe`` for keys and values."""


@register_encoding(
    "learnable_sinusoidal_rpe",
    summary="a sinusoid of learned frequencies of the clipped offset, for keys and values",
    source="Position Embeddings in BERT, Table 1",
    formula="shaw with a_r = c_r = [sin(w_1 r), cos(w_1 r), sin(w_2 r), ...], w learned",
)
def learnable_sinusoidal_rpe(
    context: EncodingContext, *, max_distance: int = 64, values: bool = True
) -> "LearnableSinusoidalVectors | LearnableSinusoidalKeys":
    """``sinusoidal_rpe`` with D/2 learned frequencies, which start at the fixed ones.

    The paper's Table 1 counts L parameters; one frequency per pair of features makes D/2.

    Args:
        context: of the model.
        max_distance: offsets are clipped to -max_distance..max_distance; 64 in the BERT paper.
        values: also add the vectors to the values, as the paper does.

    Raises:
        ValueError: for a ``max_distance`` below 1 or an odd head_dim.
    """
    cls = LearnableSinusoidalVectors if values else LearnableSinusoidalKeys
    return cls(context, max_distance=max_distance)


class LearnableSinusoidalKeys(RelativeKeys):
    """``learnable_sinusoidal_rpe`` for keys."""

    def __init__(self, context: EncodingContext, *, max_distance: int = 64) -> None:
        super().__init__(context, max_distance=max_distance)
        check_even("head_dim", context.head_dim)
        self.frequencies = nn.Parameter(learned_from(sinusoidal_frequencies(context.head_dim)))

    def key_vectors(self, like: Tensor) -> Tensor:
        offsets = _offsets(self.max_distance, self.frequencies.device)
        return sinusoids(offsets, self.frequencies).to(at_least_float32(self.frequencies))


class LearnableSinusoidalVectors(RelativeVectors, LearnableSinusoidalKeys):
    """``learnable_sinusoidal_rpe`` for keys and values."""
