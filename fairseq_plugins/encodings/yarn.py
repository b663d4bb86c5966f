"""YaRN: rotations stretched to longer sequences, each pair by how often it turns in training."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, at_least_float32
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
    """theta -> theta ((1 - gamma) / f + gamma): angles (n,) to angles (n,) (YaRN, NTK by parts).

    gamma is 1 where a pair turns ``fast`` times or more in a sequence of the training's length,
    which tells neighbours apart and stays as it is; 0 where it turns ``slow`` times or less, which
    is interpolated like the positions; and rises from one to the other between. A factor of 1
    changes nothing.

    Attributes:
        factor: f, how many times as long sequences become.
        length: of the sequences in training.
        slow: turns, alpha in the paper.
        fast: turns, beta in the paper.
        ramp: what gamma rises linearly with: the ``turns`` of a pair, as in the paper, or the
            index of ``pairs`` between the two whose turns are ``slow`` and ``fast``, as in the
            release (and transformers).
        rotated_dim: features that are turned.
        base: of geometric angles, which ``pairs`` are.
    """

    factor: float
    length: int
    slow: float
    fast: float
    ramp: Ramp
    rotated_dim: int
    base: float

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
        """The index, between two pairs, at which geometric angles make so many turns."""
        longest = self.length / (2 * math.pi * turns)
        return self.rotated_dim * math.log(longest) / (2 * math.log(self.base))


class StretchedRotation(Rotation):
    """A rotation by stretched angles; learned ones are stretched wherever they are by now.

    Args:
        angles: before stretching; see ``Angles``, as ``count``.
        stretch: of angles.
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
    """What multiplies the logits, 1/t = (0.1 ln f + 1)^2 (YaRN, temperature)."""
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
    """A rotation stretched to sequences ``factor`` times as long as those it was trained on.

    The weights are those of ``rope``, or of the ``lrpe`` with the same ``p`` and the same things
    learned: a model trained with one goes on with the other. Permutations and LRPE's complex core
    have no place here: there are no angles in the one, and the other's type 8 turns single
    features where the paper turns pairs.

    Args:
        context: of the model.
        factor: f, at least 1; with 1 it is what it was trained as.
        trained_length: of the sequences in training; 0 for ``max_positions``.
        slow: turns in that length up to which a pair is interpolated; alpha, 1 in the paper.
        fast: turns from which it stays as it is; beta, 32 in the paper.
        ramp: what is between goes by its ``turns``, as in the paper, or by its place among the
            ``pairs``, as in the release.
        temperature: ``paper``, logits times (0.1 ln f + 1)^2, or ``none``. Softmax attention
            alone has one: a factor on all scores changes nothing where a sum is divided by.
        p: P of ``lrpe``, as the options that follow.
        rotated: see ``lrpe``.
        layout: which features are a pair.
        base: of the angles before stretching.
        learned_p: learn the Householder vector.
        learned_theta: learn the angles before stretching.

    Raises:
        ValueError: a ``factor`` below 1 or infinite, a negative ``trained_length``, ``slow`` and
            ``fast`` that are not positive and in this order; and see ``lrpe``.
    """
    if not 1.0 <= factor < math.inf:
        raise ValueError(f"`factor` must be finite and at least 1, but is {factor} instead.")
    if trained_length < 0:
        raise ValueError(
            f"`trained_length` must be positive, or 0 for max_positions={context.max_positions}, "
            f"but is {trained_length} instead."
        )
    if not 0.0 < slow < fast < math.inf:
        raise ValueError(
            f"`slow` must be positive and below `fast`, but they are {slow} and {fast} instead."
        )
    angles, count = rotation_angles(context, rotated, base)
    stretch = NtkByParts(
        factor=factor,
        length=trained_length or context.max_positions,
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
