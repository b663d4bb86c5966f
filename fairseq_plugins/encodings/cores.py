"""The position-dependent matrices Lambda(s) of LRPE (LRPE, Eq. 23 to 25)."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import at_least_float32
from fairseq_plugins.encodings.frequencies import learned_from
from fairseq_plugins.encodings.permutations import PermutationPowers
from fairseq_plugins.encodings.position_bounds import is_recorded
from fairseq_plugins.encodings.rotation import Layout, rotate
from fairseq_plugins.encodings.tables import Constant, Formula, PositionTable, once_per_positions
from fairseq_plugins.kernels.backend import is_transformed


class Core(nn.Module):
    """A family of matrices Lambda(s). The encoding owns its tensor, if any, in its state dict."""

    tensor: str  # its name in the state dict
    is_complex = False  # whether Lambda(s) x is complex
    is_permutation = False  # whether Lambda(s) only permutes features
    is_learned = False  # whether the tensor is a parameter
    score_factor = 1.0  # on the scores of softmax attention, besides 1/sqrt(D)

    def draw(self, generator: torch.Generator | None) -> Tensor | None:
        """Return the initial tensor; None if there is none."""
        raise NotImplementedError

    def advance(self, x: Tensor, positions: Tensor, tensor: Tensor | None) -> Tensor:
        """Return Lambda(s) x: (B, H, T, D or 2D) -> (B, H, T, D or 2D)."""
        raise NotImplementedError


class Angles(Core):
    """Base class of matrices Lambda(s) that turn by angles s theta, with theta learned or fixed.

    Args:
        angles: formula of theta, (n,) float64.
        count: n.
        is_learned: whether theta is a parameter, initially ``angles``.
    """

    tensor = "theta"

    def __init__(self, angles: Formula, count: int, *, is_learned: bool) -> None:
        super().__init__()
        self.angles, self.count, self.is_learned = angles, count, is_learned
        self.table = None if is_learned else PositionTable(Formula(_cos_sin, (angles,)))

    def draw(self, generator: torch.Generator | None) -> Tensor | None:
        return learned_from(self.angles()) if self.is_learned else None

    def cos_sin(self, positions: Tensor, theta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return cos and sin of s theta: (B or 1, T) -> 2 x (B or 1, 1, T, n), at least float32."""
        if self.table is not None:
            return once_per_positions(self.table, positions, lambda: self._rows(positions))
        assert theta is not None
        if torch.is_grad_enabled() or is_recorded(positions) or is_transformed() or theta.is_cuda:
            return _turned(positions, theta)
        # The queries of a layer usually have the same tensor of positions as its keys.
        key = _Values(theta)

        def make() -> tuple[Tensor, Tensor]:
            key.copy()
            return _turned(positions, theta)

        return once_per_positions(key, positions, make)

    def _rows(self, positions: Tensor) -> tuple[Tensor, ...]:
        assert self.table is not None
        return self.table(positions).unsqueeze(1).unbind(-2)


class _Values:
    """A cache key: a tensor, compared by its values. On a GPU a comparison waits for the kernels.

    Call ``copy`` before keeping the key, since the tensor may be written to.
    """

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def copy(self) -> None:
        self.x = self.x.clone()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Values)
            and self.x.dtype == other.x.dtype
            and torch.equal(self.x, other.x)
        )

    __hash__ = None  # type: ignore[assignment]


def _turned(positions: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    # Float64, because float32 loses three digits of an angle at position 10,000.
    turns = positions.double().unsqueeze(-1) * theta.double()
    wide = at_least_float32(theta)
    return turns.cos().to(wide).unsqueeze(1), turns.sin().to(wide).unsqueeze(1)


def _cos_sin(positions: Tensor, angles: Formula) -> Tensor:
    """Return cosines and sines of positions times angles: (...) -> (..., 2, n)."""
    turns = positions.unsqueeze(-1) * angles(device=positions.device)
    return torch.stack((turns.cos(), turns.sin()), dim=-2)


class Rotation(Angles):
    """Rotation of feature pairs by s theta (Eq. 24); features beyond 2n are unchanged.

    Args:
        layout: which features are a pair; the others as in ``Angles``.
    """

    def __init__(self, angles: Formula, count: int, *, layout: Layout, is_learned: bool) -> None:
        super().__init__(angles, count, is_learned=is_learned)
        self.layout = layout

    def advance(self, x: Tensor, positions: Tensor, tensor: Tensor | None) -> Tensor:
        cos, sin = self.cos_sin(positions, tensor)
        return rotate(x, cos, sin, self.layout)


class Phase(Angles):
    """Lambda(s) = diag exp(i s theta), an angle per feature (Eq. 23)."""

    is_complex = True

    def advance(self, x: Tensor, positions: Tensor, tensor: Tensor | None) -> Tensor:
        """Return Lambda(s) x for real features (B, H, T, D) or complex ones [Re; Im]."""
        cos, sin = self.cos_sin(positions, tensor)
        if x.size(-1) == self.count:
            return torch.cat((x * cos, x * sin), dim=-1).to(x.dtype)
        real, imag = x.chunk(2, dim=-1)
        return torch.cat((real * cos - imag * sin, real * sin + imag * cos), dim=-1).to(x.dtype)


class Permutation(Core):
    """The s-th power of a fixed random permutation (Eq. 25).

    Args:
        dim: D.
        first: (D,), a permutation that is applied before the powers.
    """

    tensor = "permutation"
    is_permutation = True

    def __init__(self, dim: int, first: Constant | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.powers = PermutationPowers(first)

    def draw(self, generator: torch.Generator | None) -> Tensor:
        return torch.randperm(self.dim, generator=generator)

    def advance(self, x: Tensor, positions: Tensor, tensor: Tensor | None) -> Tensor:
        """Return Lambda(s) x: (B, H, T, D), or both halves of (B, H, T, 2D)."""
        assert tensor is not None
        return self.powers(x, tensor, positions)
