"""Additive biases on the attention logits, for softmax attention only (it has T x S logits)."""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, widened
from fairseq_plugins.encodings.clipping import ClippedOffsets
from fairseq_plugins.encodings.frequencies import Device
from fairseq_plugins.encodings.pairwise import OffsetBias, PairwiseBias, position_at
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Constant, Formula


def alibi_slopes(num_heads: int, device: Device = None) -> Tensor:
    """Return the slopes m_h (H,) float32 of ALiBi (Press et al. 2021).

    m_h = 2^(-8h/H) for H a power of two; otherwise those of the power below, then every other
    one of the power above. (Eq. 7 of Gu et al. 2025 agrees only for H = 8; its own
    example of H = 16 is this formula.)
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * power, 2)]
    slopes += between[: num_heads - power]
    return torch.tensor(slopes, dtype=torch.float32, device=device)


def alibi_bias(offsets: Tensor, slopes: Tensor) -> Tensor:
    """Return -m |t - s| of offsets t - s, for slopes m that broadcast against them."""
    return -slopes * offsets.abs()


@register_encoding(
    "alibi",
    known_as=("linear_bias", "linear_biases"),
    summary="a penalty that grows with the distance, one slope per head",
    source="ALiBi (Press et al. 2021); Gu et al. 2025, Eq. 7",
    formula="logit - m_h |t - s|, m_h = 2^(-8h/H)",
)
class ALiBi(OffsetBias):
    """logits - m_h |t - s|, added after scaling. Symmetric where the attention is not causal."""

    keeps_absolute_embedding = False
    shared_across_layers = True

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.slopes = Constant(Formula(alibi_slopes, (context.num_heads,)))

    def bias_at(self, offsets: Tensor, end: int | None) -> Tensor:
        return alibi_bias(offsets.unsqueeze(-3), self.slopes.on(offsets).view(-1, 1, 1))

    def pairwise_bias(self, q_positions: Tensor, k_positions: Tensor, end: int) -> PairwiseBias:
        """Compute the bias of a pair, which takes fewer GPU registers than a table."""
        slopes = self.slopes.on(q_positions)
        q_at, k_at = position_at(q_positions), position_at(k_positions)

        def of_pair(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return alibi_bias(k_at(b, k) - q_at(b, q), slopes[h])

        return PairwiseBias(of_pair)


def draw_biases(rows: int, context: EncodingContext) -> nn.Parameter:
    """Draw a learned bias per row and head: (rows, H), from N(0, 1/C)."""
    weight = torch.randn(rows, context.num_heads, generator=context.generator)
    return nn.Parameter(weight * context.embed_dim**-0.5)


def gather_biases(weight: Tensor, index: Tensor) -> Tensor:
    """Gather rows of a table of biases: (rows, H), (..., T, S) -> (..., H, T, S).

    In float32 or wider, in which the gradients of all pairs with the same row are added.
    """
    return widened(weight)[index].movedim(-1, -3)


def t5_buckets(relative: Tensor, *, num_buckets: int, max_distance: int, causal: bool) -> Tensor:
    """Return the bucket of each offset ``k_position - q_position`` (T5, Raffel et al. 2020).

    The smaller half of the buckets holds one distance each; the rest grow logarithmically up to
    ``max_distance``, beyond which all share the last. Bidirectional attention gives half of the
    buckets to each sign; causal attention puts later keys into bucket 0.

    Returns:
        int64 of the shape of ``relative``, in 0..num_buckets-1.
    """
    if causal:
        offset = torch.zeros_like(relative)
        distance = (-relative).clamp(min=0)
    else:
        num_buckets //= 2
        offset = (relative > 0).long() * num_buckets
        distance = relative.abs()
    exact = num_buckets // 2
    # Clamped below so that the logarithm's unused branch is finite.
    ratio = distance.clamp(min=exact).float() / exact
    steps = torch.log(ratio) / math.log(max_distance / exact) * (num_buckets - exact)
    logarithmic = (exact + steps.long()).clamp(max=num_buckets - 1)
    return offset + torch.where(distance < exact, distance, logarithmic)


@register_encoding(
    "t5",
    known_as=("relative", "relative_bias", "buckets"),
    summary="a learned bias per bucket of distances and head",
    source="T5 (Raffel et al. 2020); LRPE, Eq. 7; Gu et al. 2025, Eq. 6",
    formula="logit + b[h, bucket(t - s)]",
)
class T5Bias(OffsetBias):
    """A learned bias per bucket of distances and head, shared by all layers.

    T5 itself drops the factor 1/sqrt(head_dim); here the logits keep it. Eq. 6 of
    Gu et al. 2025 is a damaged form of the buckets; this follows T5.

    Raises:
        ValueError: for fewer than 4 (or an odd number of) buckets, or a ``max_distance`` within
            the exact buckets.
    """

    shared_across_layers = True

    def __init__(
        self, context: EncodingContext, *, num_buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__(context)
        if num_buckets < 4 or num_buckets % 2:
            raise ValueError(
                f"`num_buckets` must be even and at least 4, but is {num_buckets} instead."
            )
        if max_distance <= num_buckets // 2:
            raise ValueError(
                f"`max_distance` must be above num_buckets / 2 = {num_buckets // 2}, "
                f"but is {max_distance} instead."
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.weight = draw_biases(num_buckets, context)

    def bias_at(self, offsets: Tensor, end: int | None) -> Tensor:
        buckets = t5_buckets(
            offsets,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
            causal=self.context.causal,
        )
        return gather_biases(self.weight, buckets)


@register_encoding(
    "scalar",
    known_as=("relative_bias",),
    summary="a learned bias per clipped offset and head",
    source="LRPE, Eq. 7, after Huang et al. 2020",
    formula="logit + w[h, t - s], t - s clipped",
)
class ScalarBias(OffsetBias, ClippedOffsets):
    """A learned bias per clipped offset and head, shared by all layers.

    Eq. 7 does not specify heads, layers or clipping: this is T5's bias with a row for every
    offset, clipped as in ``shaw``. It is added after the scaling by 1/sqrt(head_dim), where Eq. 7
    adds it before; a learned scalar absorbs the factor.
    """

    def __init__(self, context: EncodingContext, *, max_distance: int = 64) -> None:
        super().__init__(context, max_distance=max_distance)
        self.weight = draw_biases(2 * max_distance + 1, context)

    def bias_at(self, offsets: Tensor, end: int | None) -> Tensor:
        return gather_biases(self.weight, self.row_of(offsets))
