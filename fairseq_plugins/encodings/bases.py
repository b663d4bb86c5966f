"""The unitary matrices P of LRPE: changes of basis of a head's features (LRPE, Appendix C.7).

The cosine transform is not in the paper, but in the authors' code.

Complex features are stored as [Re; Im], 2D real features, so that a real dot product is the real
part of the complex one.
"""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import at_least_float32, widened
from fairseq_plugins.encodings.frequencies import Device
from fairseq_plugins.encodings.permutations import odd_even
from fairseq_plugins.encodings.reflection import reflect
from fairseq_plugins.encodings.tables import Constant, Formula


class Basis(nn.Module):
    """A unitary matrix P. The encoding owns its vector, if any, as ``v`` in its state dict."""

    is_complex = False  # whether P x is complex
    is_permutation = False  # whether P only permutes features
    is_learned = False  # whether the vector is a parameter

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def draw(self, generator: torch.Generator | None) -> Tensor | None:
        """Draw the initial vector; None if P has none."""
        return None

    def change(self, x: Tensor, v: Tensor | None) -> Tensor:
        """Return P x: (..., D) -> (..., D), or [Re; Im] (..., 2D) where P is complex."""
        raise NotImplementedError

    def undo(self, x: Tensor, v: Tensor | None) -> Tensor:
        """Return P^T x, the inverse of a real P: (..., D) -> (..., D)."""
        raise NotImplementedError


class Identity(Basis):
    """The identity, P = I."""

    is_permutation = True

    def change(self, x: Tensor, v: Tensor | None) -> Tensor:
        return x


class Householder(Basis):
    """The reflection I - 2 v v^T / (v^T v), v from a standard normal (LRPE, Eq. 74).

    Args:
        dim: D.
        is_learned: whether v is a parameter.
    """

    def __init__(self, dim: int, *, is_learned: bool) -> None:
        super().__init__(dim)
        self.is_learned = is_learned

    def draw(self, generator: torch.Generator | None) -> Tensor:
        # A fixed vector is float32 whatever the default dtype is.
        dtype = None if self.is_learned else torch.float32
        return torch.randn(self.dim, generator=generator, dtype=dtype)

    def change(self, x: Tensor, v: Tensor | None) -> Tensor:
        assert v is not None
        # Float32, and no epsilon in the norm: a reflection is orthogonal only for a unit vector.
        v = v.to(at_least_float32(x))
        return reflect(x.to(v.dtype), v / torch.linalg.vector_norm(v)).to(x.dtype)

    def undo(self, x: Tensor, v: Tensor | None) -> Tensor:
        """Return P x: a reflection is its own inverse."""
        return self.change(x, v)


class OddEven(Basis):
    """The permutation that interleaves the two halves of the features (LRPE, Eq. 75)."""

    is_permutation = True

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.order = Constant(Formula(odd_even, (dim,)))

    def change(self, x: Tensor, v: Tensor | None) -> Tensor:
        return x[..., self.order.on(x)]


def cosine_matrix(dim: int, device: Device = None) -> Tensor:
    """Return the orthonormal cosine transform of the second kind, (D, D) float64.

    Row k is c_k cos(pi k (n + 1/2) / D), c_0 = sqrt(1/D) and the others sqrt(2/D).
    """
    steps = torch.arange(dim, dtype=torch.float64, device=device)
    rows = torch.cos(math.pi / dim * steps.unsqueeze(1) * (steps + 0.5))
    scales = torch.full((dim, 1), math.sqrt(2 / dim), dtype=torch.float64, device=device)
    scales[0] = math.sqrt(1 / dim)
    return scales * rows


class Cosine(Basis):
    """The orthonormal cosine transform, a real counterpart of ``Fourier``."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.rows = Constant(Formula(cosine_matrix, (dim,)))

    def _rows(self, x: Tensor) -> Tensor:
        # Exact in float64, for checks of P^T P = 1.
        if x.dtype == torch.float64:
            return cosine_matrix(self.dim, x.device)
        return self.rows.on(x)

    def change(self, x: Tensor, v: Tensor | None) -> Tensor:
        rows = self._rows(x)
        return (x.to(rows.dtype) @ rows.mT).to(x.dtype)

    def undo(self, x: Tensor, v: Tensor | None) -> Tensor:
        rows = self._rows(x)
        return (x.to(rows.dtype) @ rows).to(x.dtype)


class Fourier(Basis):
    """The unitary Fourier matrix, complex since a real FFT does not keep dot products."""

    is_complex = True

    def change(self, x: Tensor, v: Tensor | None) -> Tensor:
        wide = widened(x)
        if not x.numel():  # MKL raises an error on empty input.
            return torch.cat((wide, wide), dim=-1).to(x.dtype)
        spectrum = torch.fft.fft(wide, norm="ortho")
        return torch.cat((spectrum.real, spectrum.imag), dim=-1).to(x.dtype)
