"""P and Lambda of a unitary relative encoding, from its matrices W_s alone (LRPE, Appendix C.3).

A family of unitary matrices with W_0 = I and W_s^H W_t = W_{t-s} (Eq. 14) consists of the powers of
W_1. Theorem C.1 diagonalises these over the complex numbers, Theorem C.2 turns them into rotations
of planes over the reals.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.linalg import schur
from torch import Tensor

_STEPS = 8  # positions up to which a family is compared with the powers of W_1
_TOLERANCE = 1e-5  # largest difference of an entry from a unitary, shift-consistent family


@dataclass(frozen=True)
class Decomposition:
    """The decomposition W_s = P^H Lambda(s) P for integer positions s."""

    basis: Tensor  # P, (D, D): unitary complex128, or orthogonal float64
    # In radians per position. Complex: (D,), one for each diagonal entry exp(i s angle). Real:
    # (r,), one for each plane of two features, which come first.
    angles: Tensor
    # (D - 2r,) of a real family: 1 for a constant feature, -1 for one that changes its sign with
    # every step; empty for a complex family.
    signs: Tensor

    def position_matrix(self, position: int) -> Tensor:
        """Return Lambda(position), (D, D)."""
        if self.basis.is_complex():
            return torch.diag(torch.polar(torch.ones_like(self.angles), self.angles * position))
        turned = self.angles * position
        rows = torch.stack([turned.cos(), -turned.sin(), turned.sin(), turned.cos()], -1)
        return torch.block_diag(*rows.view(-1, 2, 2), *(self.signs**position).view(-1, 1, 1))

    def relative_matrix(self, position: int) -> Tensor:
        """Return W_position = P^H Lambda(position) P, (D, D)."""
        return self.basis.mH @ self.position_matrix(position) @ self.basis


def decompose(family: Callable[[int], Tensor] | Tensor) -> Decomposition:
    """Find P and Lambda of a family W_s.

    Args:
        family: returns W_s, (D, D), real or complex, for an integer s, and is compared up to
            s = 8 with the powers of W_1; or the matrix W_1, whose powers are the family.

    Raises:
        ValueError: W_1 is not unitary, W_0 is not the identity, or W_s is not a power of W_1.
    """
    first = (family if isinstance(family, Tensor) else family(1)).detach().cpu()
    first = first.to(torch.complex128 if first.is_complex() else torch.float64)
    if first.dim() != 2 or first.size(0) != first.size(1):
        raise ValueError(f"W_1 must be (D, D), but is {tuple(first.shape)} instead.")
    unit = torch.eye(first.size(0), dtype=first.dtype)
    _check_close(first.mH @ first, unit, "W_1 is not unitary: W_1^H W_1 and I")
    if not isinstance(family, Tensor):
        power = unit
        for step in range(_STEPS + 1):
            _check_close(
                family(step).detach().cpu().to(first.dtype),
                power,
                f"the family is not shift-consistent: W_{step} and W_1^{step}",
            )
            power = power @ first
    found = _decompose_complex(first) if first.is_complex() else _decompose_real(first)
    _check_close(found.relative_matrix(1), first, "W_1 and P^H Lambda(1) P")
    return found


def _check_close(actual: Tensor, expected: Tensor, names: str) -> None:
    difference = (actual - expected).abs().max().item()
    if not difference <= _TOLERANCE:
        raise ValueError(f"{names} differ by up to {difference:.2g}, above {_TOLERANCE:.2g}.")


def _decompose_complex(first: Tensor) -> Decomposition:
    """Decompose by Theorem C.1: the Schur form of a unitary matrix is diagonal."""
    form, vectors = schur(first.numpy(), output="complex")
    basis = torch.from_numpy(vectors).mH.contiguous()
    return Decomposition(basis, torch.from_numpy(form.diagonal().copy()).angle(), torch.empty(0))


def _decompose_real(first: Tensor) -> Decomposition:
    """Decompose by Theorem C.2: a real Schur form has blocks of 2 x 2 and 1 x 1."""
    form, vectors = (torch.from_numpy(part) for part in schur(first.numpy(), output="real"))
    planes = (form.diagonal(-1).abs() > 1e-12).nonzero().flatten().tolist()
    turned = [row for plane in planes for row in (plane, plane + 1)]
    lines = [row for row in range(len(form)) if row not in turned]
    order = [*turned, *lines]
    sines = form.diagonal(-1)[planes]
    cosines = form.diagonal()[planes]
    signs = form.diagonal()[lines].sign()
    return Decomposition(vectors.mT[order].contiguous(), torch.atan2(sines, cosines), signs)
