"""Variants of RoPE: on values, with a decay (xPos), and stretched to longer sequences."""

import math
from typing import Literal

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, check_features
from fairseq_plugins.encodings.bases import Identity
from fairseq_plugins.encodings.checks import check_even, check_stretching
from fairseq_plugins.encodings.cores import Rotation
from fairseq_plugins.encodings.frequencies import Device, geometric
from fairseq_plugins.encodings.lrpe import Rotated, lrpe, rotation_angles
from fairseq_plugins.encodings.position_bounds import check_not_negative, is_recorded, known_end
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.rotation import Layout, rotate
from fairseq_plugins.encodings.tables import Formula, PositionTable
from fairseq_plugins.encodings.unitary import LRPE

register_encoding(
    "rope_learned",
    summary="RoPE with learned angles, which start at the fixed ones",
    source="RoFormer, Section 3.2; LRPE, Table 5 (the same as lrpe_identity)",
    formula="score = (R(s) q).(R(t) k), R(s) turns pair j by s theta_j, theta learned",
    p="identity",
    learned_theta=True,
)(lrpe)


@register_encoding(
    "rope_values",
    summary="RoPE on queries, keys and values",
    source="RoFormer's code (rotary_value); the output turned back: this project",
    formula="output = R(-s) sum_t w_st R(t) v_t = sum_t w_st R(t-s) v_t, w_st as in rope",
)
def rope_values(
    context: EncodingContext,
    *,
    output: Literal["turned_back", "as_is"] = "turned_back",
    rotated: Rotated = "all",
    layout: Layout = "interleaved",
    base: float = 10000.0,
) -> "RelativeValues | RotaryValues":
    """RoPE that also rotates values by their position and outputs back by the query's.

    The output of query s is sum_t w_st R(t) v_t, which has absolute positions. Rotated by R(-s) it
    becomes sum_t w_st R(t - s) v_t, a function of differences.

    Args:
        context: of the model.
        output: ``turned_back`` as above, or ``as_is`` as in RoFormer's ``rotary_value``, which is
            not relative.
        rotated: see ``rope``.
        layout: see ``rope``.
        base: base of the angles.

    Raises:
        ValueError: see ``rope``.
    """
    angles, count = rotation_angles(context, rotated, base)
    core = Rotation(angles, count, layout=layout, is_learned=False)
    cls = RelativeValues if output == "turned_back" else RotaryValues
    return cls(context, Identity(context.head_dim), core)


class RotaryValues(LRPE):
    """RoPE on values too; the output depends on absolute positions."""

    core: Rotation
    is_relative = False

    def transform_value(self, v: Tensor, positions: Tensor) -> Tensor:
        """Return R(t) v: (B, H, S, D) -> (B, H, S, D)."""
        if not self.is_relative:
            check_not_negative(self.label, positions)
        return self.transform_key(v, positions)


class RelativeValues(RotaryValues):
    """RoPE on values too, with the output rotated back by the query's position."""

    is_relative = True

    def transform_output(self, output: Tensor, positions: Tensor) -> Tensor:
        """Return R(-s) output: (B, H, T, D) -> (B, H, T, D)."""
        check_features(self, output)
        cos, sin = self.core.cos_sin(positions, self.theta)
        return rotate(output, cos, -sin, self.core.layout)


@register_encoding(
    "rope_interpolated",
    known_as=("position_interpolation",),
    summary="RoPE at positions divided by a factor",
    source="Position Interpolation (Chen et al. 2023), Eq. 3",
    formula="score = (R(s/f) q).(R(t/f) k), R(s) as in rope",
    scaling="interpolation",
)
@register_encoding(
    "rope_ntk",
    known_as=("ntk",),
    summary="RoPE with a larger base: slow pairs are stretched by a factor, the fastest not",
    source="NTK-aware scaled RoPE; YaRN (Peng et al. 2023), Definition 1",
    formula="score = (R(s) q).(R(t) k), R(s) turns pair j by s b^(-2j/D), b = base f^(D/(D-2))",
    scaling="ntk",
)
def rope_scaled(
    context: EncodingContext,
    *,
    scaling: Literal["interpolation", "ntk"] = "interpolation",
    factor: float = 2.0,
    rotated: Rotated = "all",
    layout: Layout = "interleaved",
    base: float = 10000.0,
) -> LRPE:
    """RoPE stretched to sequences ``factor`` times as long as in training.

    ``interpolation`` divides the angles of ``rope`` by f. ``ntk`` uses the base
    base f^(e/(e-2)), e the number of rotated features: the slowest pair is stretched by f, and the
    fastest, which distinguishes neighbours, not at all.

    Args:
        context: of the model.
        scaling: ``interpolation`` or ``ntk``.
        factor: f, at least 1; a model trained with ``rope`` can continue with any f.
        rotated: see ``rope``.
        layout: see ``rope``.
        base: base of the angles before scaling.

    Raises:
        ValueError: a ``factor`` below 1; fewer than 4 rotated features for ``ntk``, whose
            exponent is undefined there; and see ``rope``.
    """
    check_stretching(factor)
    angles, count = rotation_angles(context, rotated, base)
    rotated_dim = 2 * count
    if scaling == "interpolation":
        angles = Formula(_divided, (angles, factor))
    elif rotated_dim < 4:
        raise ValueError(
            "`scaling=ntk` must have at least 4 rotated features, but has "
            f"{rotated_dim} instead; with `rotated`={rotated!r}, `head_dim`={context.head_dim} is "
            "too small."
        )
    else:
        angles = Formula(_ntk, (angles, count, factor))
    core = Rotation(angles, count, layout=layout, is_learned=False)
    return LRPE(context, Identity(context.head_dim), core)


def _divided(angles: Formula, factor: float, device: Device = None) -> Tensor:
    return angles(device=device) / factor


def _ntk(angles: Formula, count: int, factor: float, device: Device = None) -> Tensor:
    """Return base'^(-2j/e) with base' = base f^(e/(e-2)), e = 2 ``count``, as two factors."""
    return angles(device=device) * geometric(count, 2 * count - 2, factor, device)


# Features up to this size, times their scale, stay in the range of the dtype.
_HEADROOM = 64.0
_LOG_LARGEST_HALF = math.log(torch.finfo(torch.float16).max / _HEADROOM)
# The largest score is that of query 0 with the last key, a hidden one. Scores are float32 for every
# dtype of features.
_LOG_LARGEST_SCORE = math.log(torch.finfo(torch.float32).max / _HEADROOM**2)
_LARGEST_OPTION = 1e12
_FURTHEST = 2**62  # in an int64


def _log_zeta(count: int, gamma: float, device: Device = None) -> Tensor:
    """Return log zeta_i, zeta_i = (i / count + gamma) / (1 + gamma): (count,) float64."""
    fraction = torch.arange(count, dtype=torch.float64, device=device) / count
    return -torch.log1p((1 - fraction) / (fraction + gamma))


def _scaled_turns(
    positions: Tensor, count: int, base: float, gamma: float, scale_base: float, reference: int
) -> Tensor:
    """Return zeta^((s - reference) / scale_base) times cos and sin: (...) -> (..., 2, count)."""
    turns = positions.unsqueeze(-1) * geometric(count, 2 * count, base, positions.device)
    log_scales = _log_zeta(count, gamma, positions.device) / scale_base
    scales = torch.exp((positions - reference).unsqueeze(-1) * log_scales)
    return torch.stack((turns.cos() * scales, turns.sin() * scales), dim=-2)


@register_encoding(
    "xpos",
    summary="RoPE with a decay per feature pair",
    source="A Length-Extrapolatable Transformer (Sun et al. 2022), Algorithm 1",
    formula="score = sum_j z_j^((s-t)/512) q_j.R_j(t-s) k_j, z_j = (j/(D/2) + 0.4)/1.4",
)
class XPos(PositionEncoding):
    """RoPE with q times zeta^(s / scale_base) and k times zeta^(-t / scale_base).

    zeta_i = (i / (D/2) + gamma) / (1 + gamma) < 1 for pair i, so that pair i of a score decays
    by zeta_i per ``scale_base`` tokens of distance. The paper counts exponents from the middle of
    the sequence, which is unknown in decoding; here they count from a fixed position, half of
    ``max_positions``, or earlier where position 0 would otherwise leave float16's range. Only
    differences matter.

    Scales grow with the distance from that position. All scores, hidden ones included, must be
    finite, so positions beyond a largest one raise an error (32,861 with the default options; in
    float16 2,832 after the fixed position). Norms depend on absolute positions, so that linear
    attention uses a plain denominator in place of an encoded one.

    Args:
        scale_base: tokens per power of zeta; 512 in the paper.
        gamma: 0.4 in the paper.
        layout: which features form pairs.
        base: base of the angles.

    Raises:
        ValueError: an odd head_dim, a ``scale_base`` or ``gamma`` that is not positive, a
            ``base`` of at most 1, one of them above 1e12, or a ``max_positions`` beyond the last
            position.
    """

    bidirectional_refusal = "its scores with later keys would grow with their distance"
    keeps_norms = False

    def __init__(
        self,
        context: EncodingContext,
        *,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        layout: Layout = "interleaved",
        base: float = 10000.0,
    ) -> None:
        super().__init__(context)
        dim, size = context.head_dim, context.max_positions
        check_even("head_dim", dim)
        bounds = (("scale_base", scale_base, 0), ("gamma", gamma, 0), ("base", base, 1))
        for name, value, low in bounds:
            if not low < value <= _LARGEST_OPTION:
                raise ValueError(
                    f"`{name}` must be above {low} and at most {_LARGEST_OPTION:g}, "
                    f"but is {value} instead."
                )
        self.scale_base, self.gamma, self.layout = scale_base, gamma, layout
        self.reference = min(size // 2, self._distance(_LOG_LARGEST_HALF))
        _, last = self.position_range(torch.float32)
        if size > last + 1:
            raise ValueError(
                f"`max_positions` must be at most {last + 1} with "
                f"scale_base={scale_base:g} and gamma={gamma:g}, but is {size} instead; a larger "
                "`scale_base` reaches further."
            )
        self.query_table, self.key_table = (
            PositionTable(
                Formula(_scaled_turns, (dim // 2, base, gamma, sign * scale_base, self.reference))
            )
            for sign in (1, -1)
        )

    def _distance(self, log_growth: float) -> int:
        """Return the number of tokens over which no scale grows by more than exp(log_growth)."""
        return int(self.scale_base * log_growth / math.log1p(1 / self.gamma))

    def position_range(self, dtype: torch.dtype) -> tuple[int, int]:
        """Return the first and the last position that features of ``dtype`` can encode."""
        if dtype == torch.float16:
            distance = self._distance(_LOG_LARGEST_HALF)
            return self.reference - distance, self.reference + distance
        distance = self._distance(_LOG_LARGEST_SCORE)
        return -distance, distance

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return zeta^(s / scale_base) R(s) q: (B, H, T, D) -> (B, H, T, D)."""
        return self._turn(q, positions, self.query_table)

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Return zeta^(-t / scale_base) R(t) k: (B, H, S, D) -> (B, H, S, D)."""
        return self._turn(k, positions, self.key_table)

    def _turn(self, x: Tensor, positions: Tensor, table: PositionTable) -> Tensor:
        check_features(self, x)
        self._check_bounds(positions, x.dtype)
        cos, sin = table(positions).unsqueeze(1).unbind(-2)
        return rotate(x, cos, sin, self.layout)

    def _check_bounds(self, positions: Tensor, dtype: torch.dtype) -> None:
        first, last = (max(-_FURTHEST, min(at, _FURTHEST)) for at in self.position_range(dtype))
        end = known_end(positions)
        if not positions.numel() or (end is not None and end <= last + 1):
            return
        least, most = positions.aminmax()
        # The largest score is of the first query and the last key.
        reach = least.clamp(max=0) + last if dtype != torch.float16 else torch.full_like(most, last)
        if is_recorded(positions):
            torch._assert_async(
                (least >= first) & (most <= reach),
                f"`positions` must be in {first}..{last} for {self.label} in {dtype}.",
            )
            return
        low, high, bound = torch.stack((least, most, reach)).tolist()
        if first <= low and high <= bound:
            return
        wrong = f"at most {bound}", f"reach {high}"
        if low < first:
            wrong = f"at least {first}", f"begin at {low}"
        raise ValueError(
            f"`positions` must be {wrong[0]} for {self.label} in {dtype} with "
            f"scale_base={self.scale_base:g}, but {wrong[1]}; a larger `scale_base` "
            "or bfloat16 in place of float16 reaches further."
        )
