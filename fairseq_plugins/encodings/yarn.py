"""YaRN: RoPE stretched to longer sequences, each pair by its number of turns in training."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, at_least_float32
from fairseq_plugins.encodings.checks import check_stretching, length_or_longest
from fairseq_plugins.encodings.cores import Rotation
from fairseq_plugins.encodings.frequencies import Device
from fairseq_plugins.encodings.lrpe import BasisName, Rotated, basis, rotation_angles
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.rotation import Layout
from fairseq_plugins.encodings.tables import Formula
from fairseq_plugins.encodings.unitary import LRPE, build_lrpe

Ramp = Literal["turns", "pairs"]


@dataclass(frozen=True)
class NtkByParts:
    """The map theta -> theta ((1 - gamma) / f + gamma) of angles (n,) (YaRN, NTK by parts).

    gamma is 1 for pairs that turn ``fast`` times or more in the training length: they stay
    unchanged, to distinguish neighbours. It is 0 for pairs that turn ``slow`` times or less: they
    are interpolated like positions. In between it rises linearly. A factor of 1 changes nothing.
    """

    factor: float  # f, the new length divided by the training length
    length: int  # of the sequences in training
    slow: float  # turns, alpha in the paper
    fast: float  # turns, beta in the paper
    # Gamma is linear in the ``turns`` of a pair, as in the paper, or in its index among the
    # ``pairs`` between ``slow`` and ``fast``, as in the release (and transformers).
    ramp: Ramp
    rotated_dim: int  # number of rotated features
    base: float  # of the geometric angles, for ``ramp=pairs``

    def __call__(self, angles: Tensor) -> Tensor:
        gamma = self._by_turns(angles) if self.ramp == "turns" else 1 - self._by_pairs(angles)
        return angles * ((1 - gamma) / self.factor + gamma)

    def _by_turns(self, angles: Tensor) -> Tensor:
        turns = angles.abs() * (self.length / (2 * math.pi))
        return ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)

    def _by_pairs(self, angles: Tensor) -> Tensor:
        low = max(math.floor(self._pair_of(self.fast)), 0)
        high = min(math.ceil(self._pair_of(self.slow)), self.rotated_dim - 1)
        index = torch.arange(angles.numel(), dtype=angles.dtype, device=angles.device)
        return ((index - low) / max(high - low, 0.001)).clamp(0, 1)

    def _pair_of(self, turns: float) -> float:
        """Return the fractional index of the pair that turns ``turns`` times in ``length``."""
        longest = self.length / (2 * math.pi * turns)
        return self.rotated_dim * math.log(longest) / (2 * math.log(self.base))


class StretchedRotation(Rotation):
    """A rotation by stretched angles; learned angles are stretched in every pass.

    Args:
        angles: before stretching, see ``Angles``.
        stretch: map of angles.
        score_factor: see ``Core``.
        count, layout, is_learned: see ``Rotation``.
    """

    def __init__(
        self,
        angles: Formula,
        count: int,
        *,
        stretch: Callable[[Tensor], Tensor],
        score_factor: float,
        layout: Layout,
        is_learned: bool,
    ) -> None:
        start = angles if is_learned else Formula(_stretched, (angles, stretch))
        super().__init__(start, count, layout=layout, is_learned=is_learned)
        self.stretch, self.score_factor = stretch, score_factor

    def cos_sin(self, positions: Tensor, theta: Tensor | None) -> tuple[Tensor, Tensor]:
        if theta is None:
            return super().cos_sin(positions, None)
        cos, sin = super().cos_sin(positions, self.stretch(theta.double()))
        wide = at_least_float32(theta)
        return cos.to(wide), sin.to(wide)


def _stretched(
    angles: Formula, stretch: Callable[[Tensor], Tensor], device: Device = None
) -> Tensor:
    return stretch(angles(device=device))


def inverse_temperature(factor: float) -> float:
    """Return the factor on the logits, 1/t = (0.1 ln f + 1)^2 (YaRN)."""
    return (0.1 * math.log(factor) + 1) ** 2


@register_encoding(
    "yarn",
    known_as=("ntk_by_parts",),
    summary="RoPE whose slow pairs are stretched by a factor, with a temperature",
    source="YaRN (Peng et al. 2023), Definition 3",
    formula="score = (1/T) (R(s) q).(R(t) k), R(s) turns pair j by s theta_j ((1 - g_j)/f + g_j), "
    "1/T = (0.1 ln f + 1)^2",
)
@register_encoding(
    "yarn_lrpe",
    summary="lrpe_type2 whose learned angles are stretched as YaRN stretches RoPE's",
    source="YaRN (Peng et al. 2023), Definition 3, on LRPE's type 2: this project",
    formula="W_s as in lrpe_type2 with theta_j ((1 - g_j)/f + g_j) for theta_j; 1/T of yarn",
    p="householder",
    learned_theta=True,
)
def yarn(
    context: EncodingContext,
    *,
    factor: float = 2.0,
    trained_length: int = 0,
    slow: float = 1.0,
    fast: float = 32.0,
    ramp: Ramp = "turns",
    temperature: Literal["paper", "none"] = "paper",
    p: BasisName = "identity",
    rotated: Rotated = "all",
    layout: Layout = "interleaved",
    base: float = 10000.0,
    learned_p: bool = False,
    learned_theta: bool = False,
) -> LRPE:
    """A rotation stretched to sequences ``factor`` times as long as in training.

    The weights are those of ``rope``, or of ``lrpe`` with the same ``p`` and learned parts: a model
    trained with one can continue with the other. LRPE's other cores are not supported: a
    permutation has no angles, and the complex core rotates single features instead of pairs.

    Args:
        context: of the model.
        factor: f, at least 1; 1 changes nothing.
        trained_length: length of the training sequences; 0 for ``max_positions``.
        slow: pairs with at most this many turns in that length are interpolated; alpha, 1 in the
            paper.
        fast: pairs with at least this many turns are unchanged; beta, 32 in the paper.
        ramp: interpolate in between by ``turns``, as in the paper, or by the index among the
            ``pairs``, as in the release.
        temperature: ``paper``, logits times (0.1 ln f + 1)^2, or ``none``. Softmax attention
            only: the denominator of linear attention cancels it.
        p: see ``rope``.
        rotated: see ``rope``.
        layout: see ``rope``.
        base: base of the angles before stretching.
        learned_p: learn the Householder vector.
        learned_theta: learn the angles before stretching.

    Raises:
        ValueError: a ``factor`` below 1 or infinite, a negative ``trained_length``, or not
            0 < ``slow`` < ``fast``; and see ``rope``.
    """
    check_stretching(factor)
    length = length_or_longest("trained_length", trained_length, context)
    if not 0.0 < slow < fast < math.inf:
        raise ValueError(
            f"`slow` must be positive and below `fast`, but they are {slow} and {fast} instead."
        )
    angles, count = rotation_angles(context, rotated, base)
    stretch = NtkByParts(
        factor=factor,
        length=length,
        slow=slow,
        fast=fast,
        ramp=ramp,
        rotated_dim=2 * count,
        base=base,
    )
    core = StretchedRotation(
        angles,
        count,
        stretch=stretch,
        score_factor=inverse_temperature(factor) if temperature == "paper" else 1.0,
        layout=layout,
        is_learned=learned_theta,
    )
    return build_lrpe(context, basis(p, context.head_dim, is_learned=learned_p), core)
