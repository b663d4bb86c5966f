"""The encodings W_s = P^H Lambda(s) P, with faster versions for some pairs of P and Lambda.

The score is (Lambda(s) P q)^H (Lambda(t) P k) = q^H W_{t-s} k (LRPE, Eq. 13 and 76): the outer
P^H cancels and is never computed.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, check_features
from fairseq_plugins.encodings.bases import Basis, Cosine, Fourier, Householder, OddEven
from fairseq_plugins.encodings.cores import Core, Permutation, Rotation
from fairseq_plugins.encodings.permutations import PermutationPowers
from fairseq_plugins.encodings.rotation import rotate, rotate_odd_even


class LRPE(PositionEncoding):
    """The unitary relative encoding W_s = P^H Lambda(s) P.

    Args:
        basis: P.
        core: Lambda.
    """

    basis: Basis
    core: Core
    v: Tensor | None
    theta: Tensor | None

    def __init__(self, context: EncodingContext, basis: Basis, core: Core) -> None:
        super().__init__(context)
        self.basis, self.core = basis, core
        self._register("v", basis.draw(context.generator), is_learned=basis.is_learned)
        self._register(core.tensor, core.draw(context.generator), is_learned=core.is_learned)
        # Permuted features stay non-negative, so that no denominator comes near zero.
        self.keeps_positive = basis.is_permutation and core.is_permutation
        # P moves the mean of non-negative features into one feature, which Lambda rotates.
        self.sums_cancel = isinstance(basis, Cosine | Fourier)

    def _register(self, name: str, tensor: Tensor | None, *, is_learned: bool) -> None:
        """Register a tensor of P or Lambda as a parameter or buffer; ignore None."""
        if is_learned and tensor is not None:
            self.register_parameter(name, nn.Parameter(tensor))
        else:
            self.register_buffer(name, tensor)

    @property
    def encoded_dim(self) -> int:
        """2D where P or Lambda is complex, else D."""
        is_complex = self.basis.is_complex or self.core.is_complex
        return self.context.head_dim * (2 if is_complex else 1)

    def logit_scale(self) -> float:
        """Return 1/sqrt(D) times Lambda's score factor."""
        return super().logit_scale() * self.core.score_factor

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return Lambda(s) P q: (B, H, T, D) -> (B, H, T, D')."""
        check_features(self, q)
        return self.advance(self.change_basis(q), positions)

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Return Lambda(t) P k: (B, H, S, D) -> (B, H, S, D')."""
        return self.transform_query(k, positions)

    def change_basis(self, x: Tensor) -> Tensor:
        """Return P x: (..., D) -> (..., D), or [Re; Im] (..., 2D) where P is complex."""
        return self.basis.change(x, self.v)

    def advance(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return Lambda(s) x: (B, H, T, D or 2D) -> (B, H, T, D')."""
        return self.core.advance(x, positions, getattr(self, self.core.tensor))


def build_lrpe(context: EncodingContext, basis: Basis, core: Core) -> LRPE:
    """Build the encoding of P and Lambda, by the class that is fastest for the two."""
    match basis, core:
        case Householder() | Cosine(), _:
            return Foldable(context, basis, core)
        case OddEven(), Permutation():
            return OddEvenPermutation(context, basis, core)
        case OddEven(), Rotation(layout="interleaved") if context.head_dim % 2 == 0:
            return OddEvenRotation(context, basis, core)
        case Fourier(), Rotation():
            return FourierRotation(context, basis, core)
    return LRPE(context, basis, core)


class Foldable(LRPE):
    """LRPE with a real P, which can be folded into the weights of the projections."""

    _is_folded = False

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return Lambda(s) P q, or Lambda(s) q if P is folded into the projection."""
        check_features(self, q)
        return self.advance(q if self._is_folded else self.change_basis(q), positions)

    @torch.no_grad()
    def fold_basis_(self, *projections: nn.Module) -> None:
        """Replace weights W by P W."""
        # Other modules, such as quantised ones, may have no writable weights.
        is_plain = all(type(projection) is nn.Linear for projection in projections)
        if is_plain and not self._is_folded:
            self._write_weights(projections, self.basis.change)
            self._is_folded = True

    @torch.no_grad()
    def unfold_basis_(self, *projections: nn.Module) -> None:
        """Replace weights P W by P^T P W = W."""
        if self._is_folded:
            self._write_weights(projections, self.basis.undo)
            self._is_folded = False

    def _write_weights(
        self, projections: Sequence[nn.Module], act: Callable[[Tensor, Tensor | None], Tensor]
    ) -> None:
        heads = (self.context.num_heads, self.context.head_dim)
        for parameter in chain.from_iterable(p.parameters() for p in projections):
            # Weights (C, C) and biases (C,), the features of a head in the last dimension.
            features = parameter.unflatten(0, heads).movedim(1, -1)
            parameter.copy_(act(features, self.v).movedim(-1, 1).flatten(0, 1))


class OddEvenRotation(LRPE):
    """Odd-even P with a rotation, D even: P changes which features are pairs, without a gather."""

    core: Rotation

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return Lambda(s) P q, with features j and D/2 + j as one complex number."""
        check_features(self, q)
        return rotate_odd_even(q, *self.core.cos_sin(positions, self.theta))


class OddEvenPermutation(LRPE):
    """Odd-even P with a permutation: one gather for both."""

    def __init__(self, context: EncodingContext, basis: OddEven, core: Permutation) -> None:
        core.powers = PermutationPowers(basis.order)
        super().__init__(context, basis, core)

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return Lambda(s) P q by one gather."""
        check_features(self, q)
        return self.advance(q, positions)


class FourierRotation(LRPE):
    """Fourier P with a rotation, which acts alike on real and imaginary parts of P q."""

    core: Rotation

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return [Lambda(s) Re P q; Lambda(s) Im P q]."""
        check_features(self, q)
        cos, sin = self.core.cos_sin(positions, self.theta)
        halves = self.change_basis(q).chunk(2, dim=-1)
        return torch.cat([rotate(half, cos, sin, self.core.layout) for half in halves], dim=-1)
