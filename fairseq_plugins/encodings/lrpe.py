"""LRPE: the family W_s = P^H Lambda(s) P of unitary relative encodings, and RoPE among it.

The score is (Lambda(s) P q)^H (Lambda(t) P k) = q^H W_{t-s} k (LRPE, Eq. 13 and 76): the outer
P^H cancels and is never computed. Complex features are kept as [Re; Im], 2D real features, so
that a real dot product is the real part of the complex one.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Literal

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding
from fairseq_plugins.encodings.frequencies import ThetaType, geometric, theta
from fairseq_plugins.encodings.permutations import (
    PermutationPowers,
    follow_permutation,
    odd_even,
)
from fairseq_plugins.encodings.reflection import reflect
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.rotation import Layout, rotate, rotate_odd_even
from fairseq_plugins.encodings.tables import PositionTable

_PAPER = "LRPE, Table 1 and Appendix C.7"
_FORM = "W_s = P^H Lambda(s) P; "


@register_encoding(
    "rope",
    summary="rotation of feature pairs by fixed angles",
    source="RoFormer (Su et al. 2021); LRPE, Appendix C.7",
    formula="score = (R(s) q).(R(t) k), R(s) turns feature pair j by s 10000^(-2j/D)",
    p="identity",
)
@register_encoding(
    "lrpe_identity",
    summary="identity x learned rotation (row Identity of the ablation of P)",
    source="LRPE, Table 5",
    formula="W_s = Lambda(s); Lambda(s) turns feature pair j by s theta_j, theta learned",
    p="identity",
    learned_theta=True,
)
@register_encoding(
    "lrpe_type1",
    summary="Householder x fixed rotation of half the features",
    source=_PAPER,
    formula=_FORM + "P Householder, Lambda(s) turns half of the features by s theta_j",
    rotated="half",
)
@register_encoding(
    "lrpe_type2",
    summary="Householder x learned rotation",
    source=_PAPER,
    formula=_FORM + "P Householder, Lambda(s) turns pair j by s theta_j, theta learned",
    learned_theta=True,
)
@register_encoding(
    "lrpe_type3",
    summary="learned Householder x learned rotation",
    source=_PAPER,
    formula=_FORM + "P learned Householder, theta learned",
    learned_p=True,
    learned_theta=True,
)
@register_encoding(
    "lrpe_type4",
    summary="Householder x powers of a permutation",
    source=_PAPER,
    formula=_FORM + "P Householder, Lambda(s) permutes the features s times",
    core="permutation",
)
@register_encoding(
    "lrpe_type5",
    summary="odd-even permutation x fixed rotation of half the features",
    source=_PAPER,
    formula=_FORM + "P odd-even, Lambda(s) turns half of the features by s theta_j",
    p="odd_even",
    rotated="half",
)
@register_encoding(
    "lrpe_type6",
    summary="odd-even permutation x learned rotation",
    source=_PAPER,
    formula=_FORM + "P odd-even, Lambda(s) turns pair j by s theta_j, theta learned",
    p="odd_even",
    learned_theta=True,
)
@register_encoding(
    "lrpe_type7",
    summary="odd-even permutation x powers of a permutation",
    source=_PAPER,
    formula=_FORM + "P odd-even, Lambda(s) permutes the features s times",
    p="odd_even",
    core="permutation",
)
@register_encoding(
    "lrpe_type8",
    summary="Fourier transform x complex exponentials",
    source=_PAPER,
    formula=_FORM + "P unitary Fourier matrix, Lambda(s) = diag exp(i s alpha_j)",
    p="fft",
    core="complex",
)
class LRPE(PositionEncoding):
    """W_s = P^H Lambda(s) P.

    Args:
        context: of the model.
        p: P, the unitary change of basis. ``householder`` is I - 2 v v^T / (v^T v) with v drawn
            from a standard normal (Eq. 74); ``odd_even`` interleaves the two halves of the
            features (Eq. 75 as printed is no bijection; this is the pseudocode's); ``fft`` the
            unitary Fourier matrix.
        core: Lambda(s). ``rotation`` of feature pairs by s theta (Eq. 24), ``permutation`` the
            s-th power of a random permutation (Eq. 25), ``complex`` diag exp(i s alpha) (Eq. 23).
        rotated: rotate all features, or the leading D - floor(D / 2) rounded up to even. The
            paper's types 1 and 5 say ``half`` (Appendix C.7, q = floor(d/2)); its released code
            rotates ``all``, with which type 5 is half-split RoPE.
        layout: which features are a pair of a rotation.
        theta_type: ``a`` 10000^(-2t/e); ``b`` and ``c`` depend on the longest position, so a
            causal model cannot have them.
        base: of theta type a and of alpha.
        learned_p: learn the Householder vector v.
        learned_theta: learn the angles per step of ``rotation`` or ``complex``.

    Raises:
        ValueError: an odd head_dim where all features are rotated; ``learned_p`` without a
            Householder P; ``learned_theta`` with a permutation; theta types b and c in a causal
            model or with another core.
    """

    v: Tensor
    order: Tensor
    permutation: Tensor

    def __init__(
        self,
        context: EncodingContext,
        *,
        p: Literal["identity", "householder", "odd_even", "fft"] = "householder",
        core: Literal["rotation", "permutation", "complex"] = "rotation",
        rotated: Literal["all", "half"] = "all",
        layout: Layout = "interleaved",
        theta_type: ThetaType = "a",
        base: float = 10000.0,
        learned_p: bool = False,
        learned_theta: bool = False,
    ) -> None:
        super().__init__(context)
        self.p, self.core, self.layout = p, core, layout
        self._is_folded = False  # whether the projections hold P
        dim = context.head_dim
        _check_options(context, p, core, rotated, theta_type, base, learned_p, learned_theta)
        if core == "permutation" and layout != "interleaved":
            raise ValueError(f"`layout={layout}` needs a core that rotates, not {core!r}.")
        if p == "householder":
            v = torch.randn(dim, generator=context.generator)
            self._register("v", v, learned_p)
        if p == "odd_even":
            self.register_buffer("order", odd_even(dim), persistent=False)
        self.rotated_dim = dim if rotated == "all" else _even(dim - dim // 2)
        if core == "permutation":
            drawn = torch.randperm(dim, generator=context.generator)
            self.register_buffer("permutation", drawn)
            # One gather serves P too where that is a permutation.
            first = odd_even(dim) if p == "odd_even" else None
            self.powers = PermutationPowers(context.max_positions, first)
            follow_permutation(self)
            # Permuted features stay what they are, so that no denominator comes near zero.
            self.keeps_positive = p in ("identity", "odd_even")
        elif core == "complex":
            self._set_angles(geometric(dim, dim, base), learned_theta)
        else:
            angles = theta(theta_type, self.rotated_dim, base, context.max_positions)
            self._set_angles(angles, learned_theta)

    def _register(self, name: str, value: Tensor, learned: bool) -> None:
        if learned:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value)

    def _set_angles(self, angles: Tensor, learned: bool) -> None:
        """Angles per step of position: a parameter, or tables of their cosines and sines."""
        self.theta: nn.Parameter | None = None
        self.table: PositionTable | None = None
        if learned:
            self.theta = nn.Parameter(angles.float())
        else:

            def cos_sin(positions: Tensor) -> Tensor:
                turns = positions.unsqueeze(-1) * angles
                return torch.stack((turns.cos(), turns.sin()), dim=-2)

            self.table = PositionTable(cos_sin, self.context.max_positions)

    @property
    def encoded_dim(self) -> int:
        """2D where P or Lambda is complex, else D."""
        is_complex = self.p == "fft" or self.core == "complex"
        return self.context.head_dim * (2 if is_complex else 1)

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Lambda(s) P q: (B, H, T, D) -> (B, H, T, D')."""
        if self._pairs_halves:
            return rotate_odd_even(q, *self._cos_sin(positions))
        if self.core == "permutation" and self.p == "odd_even":
            return self._advance(q, positions)
        return self._advance(q if self._is_folded else self.change_basis(q), positions)

    @property
    def _pairs_halves(self) -> bool:
        """Whether P only says which features are a pair."""
        pairs = self.p == "odd_even" and self.core == "rotation" and self.layout == "interleaved"
        return pairs and self.context.head_dim % 2 == 0

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Lambda(t) P k: (B, H, S, D) -> (B, H, S, D')."""
        return self.transform_query(k, positions)

    def change_basis(self, x: Tensor) -> Tensor:
        """P x: (..., D) -> (..., D), or [Re; Im] (..., 2D) for ``fft``."""
        if self.p == "householder":
            # In float32 and without an epsilon: the reflection is orthogonal only if v is unit.
            v = self.v.to(torch.promote_types(x.dtype, torch.float32))
            return reflect(x.to(v.dtype), v / v.norm()).to(x.dtype)
        if self.p == "odd_even":
            return x[..., self.order]
        if self.p == "fft":
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            spectrum = torch.fft.fft(wide, norm="ortho")
            return torch.cat((spectrum.real, spectrum.imag), dim=-1).to(x.dtype)
        return x

    @torch.no_grad()
    def fold_basis_(self, *projections: nn.Module) -> None:
        """P W in place of W where P is a reflection; a permutation P costs nothing as it is."""
        # Other modules than Linear, as quantised ones, need not have weights that can be written.
        is_plain = all(type(projection) is nn.Linear for projection in projections)
        if self.p != "householder" or self._is_folded or not is_plain:
            return
        self._reflect_weights(projections)
        self._is_folded = True

    @torch.no_grad()
    def unfold_basis_(self, *projections: nn.Module) -> None:
        """P P W, which is W: a reflection is its own inverse."""
        if self._is_folded:
            self._reflect_weights(projections)
            self._is_folded = False

    def _reflect_weights(self, projections: Sequence[nn.Module]) -> None:
        heads = (self.context.num_heads, self.context.head_dim)
        for parameter in chain.from_iterable(p.parameters() for p in projections):
            # Weights (C, C) and biases (C,), the features of a head in the last dimension.
            features = parameter.unflatten(0, heads).movedim(1, -1)
            parameter.copy_(self.change_basis(features).movedim(-1, 1).flatten(0, 1))

    def _advance(self, x: Tensor, positions: Tensor) -> Tensor:
        """Lambda(positions) x."""
        if self.core == "permutation":
            permuted: Tensor = self.powers(x, self.permutation, positions)
            return permuted
        cos, sin = self._cos_sin(positions)
        if self.core == "complex":
            return _multiply_phase(x, cos, sin, self.context.head_dim)
        if self.p == "fft":
            # Lambda is real, so it acts alike on the real and the imaginary half.
            halves = (rotate(part, cos, sin, self.layout) for part in x.chunk(2, dim=-1))
            return torch.cat(tuple(halves), dim=-1)
        return rotate(x, cos, sin, self.layout)

    def _cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B or 1, 1, T, angles), at least float32."""
        if self.table is not None:
            cos, sin = self.table(positions).unbind(-2)
        else:
            assert self.theta is not None
            # Float64, because float32 loses three digits of an angle at position 10,000.
            turns = positions.double().unsqueeze(-1) * self.theta.double()
            cos, sin = turns.cos().to(self.theta.dtype), turns.sin().to(self.theta.dtype)
        return cos.unsqueeze(1), sin.unsqueeze(1)

    def matrix(self, position: int) -> Tensor:
        """W_s = P^H Lambda(s) P of one position: (D, D) complex128, from the definition.

        For analysis and tests; the transforms never build it.
        """
        dim = self.context.head_dim
        eye = torch.eye(dim, dtype=torch.float64)
        basis = self.change_basis(eye).double().mT
        if self.p == "fft":
            basis = torch.complex(basis[:dim], basis[dim:])
        basis = basis.to(torch.complex128)
        return basis.mH @ self._core_matrix(position).to(torch.complex128) @ basis

    def _core_matrix(self, position: int) -> Tensor:
        dim = self.context.head_dim
        at = torch.tensor([[position]])
        if self.core == "permutation":
            power = torch.eye(dim, dtype=torch.float64)
            for _ in range(position):
                power = power[self.permutation]
            return power
        cos, sin = (t.flatten().double() for t in self._cos_sin(at))
        if self.core == "complex":
            return torch.diag(torch.complex(cos, sin))
        result = torch.eye(dim, dtype=torch.float64)
        for t in range(self.rotated_dim // 2):
            i, j = (2 * t, 2 * t + 1)
            if self.layout == "half_split":
                i, j = t, t + self.rotated_dim // 2
            result[i, i] = result[j, j] = cos[t]
            result[i, j], result[j, i] = -sin[t], sin[t]
        return result


def _even(number: int) -> int:
    return number + number % 2


def _multiply_phase(x: Tensor, cos: Tensor, sin: Tensor, dim: int) -> Tensor:
    """exp(i angle) x with [Re; Im] halves: real (..., D) or complex (..., 2D) -> (..., 2D)."""
    if x.size(-1) == dim:
        return torch.cat((x * cos, x * sin), dim=-1).to(x.dtype)
    real, imag = x.chunk(2, dim=-1)
    return torch.cat((real * cos - imag * sin, real * sin + imag * cos), dim=-1).to(x.dtype)


def _check_options(
    context: EncodingContext,
    p: str,
    core: str,
    rotated: str,
    theta_type: str,
    base: float,
    learned_p: bool,
    learned_theta: bool,
) -> None:
    dim = context.head_dim
    if core == "rotation" and rotated == "all" and dim % 2:
        raise ValueError(
            f"`head_dim` must be even for a rotation of all features, but is {dim} instead."
        )
    if core == "rotation" and dim < 3 and rotated == "half":
        raise ValueError(f"`head_dim` must be at least 3 for rotated=half, but is {dim} instead.")
    if learned_p and p != "householder":
        raise ValueError(f"`learned_p=true` needs `p=householder`, but `p` is {p!r} instead.")
    if learned_theta and core == "permutation":
        raise ValueError("`learned_theta=true` needs a core with angles, not `core=permutation`.")
    if not 1.0 < base < math.inf:
        raise ValueError(f"`base` must be finite and above 1, but is {base} instead.")
    if theta_type != "a":
        if core != "rotation":
            raise ValueError(f"`theta_type={theta_type}` needs `core=rotation`, not {core!r}.")
        if context.causal:
            raise ValueError(
                f"`theta_type={theta_type}` depends on the sequence's length, which a causal model "
                "does not know while it generates; use `theta_type=a`."
            )
