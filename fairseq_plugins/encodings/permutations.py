"""Permutations of features: the odd-even one and the powers of a random one."""

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.encodings.frequencies import Device
from fairseq_plugins.encodings.position_bounds import bounds_of, is_recorded
from fairseq_plugins.encodings.tables import Constant, power_of_two, suits_table, without_modes
from fairseq_plugins.kernels.backend import apply_function, is_transformed

_MIN_ROWS = 64


def odd_even(dim: int, device: Device = None) -> Tensor:
    """Return the index (D,) int64 of 2k -> k, 2k+1 -> ceil(D/2) + k (LRPE, Eq. 75).

    Element i of the result is element ``index[i]`` of the input. The equation as printed maps
    every odd feature to one place; this follows its pseudocode.
    """
    index = torch.arange(dim, device=device)
    half = dim - dim // 2
    return torch.where(index % 2 == 0, index // 2, half + index // 2)


def power_table(permutation: Tensor, size: int) -> Tensor:
    """Return the indices (size, ..., D) of the powers of permutations (..., D) (LRPE, Eq. 59).

    Row s applies ``permutation`` s times. Power s + n is power s gathered by power n, so that the
    number of rows doubles in every iteration.
    """
    table = torch.arange(permutation.size(-1), device=permutation.device)
    table = table.expand_as(permutation).unsqueeze(0)
    step = permutation
    while table.size(0) < size:
        rest = table[: size - table.size(0)]
        table = torch.cat((table, rest.gather(-1, step.expand_as(rest))))
        step = step.gather(-1, step)
    return table


def powers_at(permutation: Tensor, positions: Tensor) -> Tensor:
    """Return the indices of the powers at positions of any sign: (H, D), (B, T) -> (B, T, H, D).

    A feature returns to its place after the length of its cycle, at most D steps.
    """
    dim = permutation.size(-1)
    table = power_table(permutation, dim + 1)
    steps = torch.arange(1, dim + 1, device=permutation.device).view(-1, 1, 1)
    lengths = steps.where(table[1:] == table[0], dim).amin(0)
    # No length is 0, but vectors of a compiled graph may reach beyond the last feature.
    turns = positions.flatten().view(-1, 1, 1).remainder(lengths.clamp(min=1))
    return table.gather(0, turns).unflatten(0, positions.shape)


class _Powers(NamedTuple):
    """Cached powers of a permutation, as indices of features."""

    permutation: "weakref.ref[Tensor]"  # (D,) or (H, D)
    version: int  # the permutation's version counter, to detect writes
    rows: Tensor  # (N, 1 or H, D), the powers 0 to N - 1
    inverses: Tensor  # (N, 1 or H, D)


class PermutationPowers:
    """Applies powers of fixed permutations to features, with the position as exponent.

    The powers and their inverses are cached as long as the permutation is unchanged. The inverses
    make the backward pass a gather: the scatter of a plain gather is slower and not deterministic
    on a GPU. The cache is neither copied nor saved with a module.

    Args:
        first: (D,), a permutation that is applied before the powers.
    """

    def __init__(self, first: Constant | None = None) -> None:
        self.first = first
        self._cache: dict[torch.device, _Powers] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.first,)

    def __call__(self, x: Tensor, permutation: Tensor, positions: Tensor) -> Tensor:
        """Apply ``permutation`` s times to the features of the token at position s.

        Args:
            x: (B, H, T, D), or (B, H, T, 2D) with two halves that are permuted alike.
            permutation: (D,), or (H, D) with one per head.
            positions: (B or 1, T), of any sign.

        Returns:
            The shape of ``x``.
        """
        index, inverse = self._indices(permutation, positions)
        # Tokens before heads, the memory layout of projections, halves the time of a gather.
        halves = x.transpose(1, 2).split(index.size(-1), dim=-1)
        permuted = [_permute(half, index, inverse) for half in halves]
        whole = permuted[0] if len(permuted) == 1 else torch.cat(permuted, dim=-1)
        return whole.transpose(1, 2)

    def _indices(self, permutation: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the indices and their inverses, each (B or 1, T, 1 or H, D)."""
        low = end = 0
        is_direct = is_recorded(positions) or permutation.is_inference()
        if not is_direct:
            low, end = bounds_of(positions)
        if is_direct or not suits_table(positions, low, end):
            permutation = torch.atleast_2d(permutation)
            there, back = (powers_at(permutation, at) for at in (positions, -positions))
            return self._after_first(there, back, positions)
        rows, inverses = (
            table.index_select(0, positions.flatten()).unflatten(0, positions.shape)
            for table in self._tables(permutation, end)
        )
        return rows, inverses

    def _after_first(self, there: Tensor, back: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Compose powers and their inverses with ``first``, on the device of ``like``."""
        if self.first is None:
            return there, back
        first = self.first.on(like)
        return first[there], back[..., first.argsort()]

    def _tables(self, permutation: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return at least ``count`` powers and their inverses."""
        device, version = permutation.device, permutation._version
        cached = self._cache.get(device)
        is_same = cached and cached.permutation() is permutation and cached.version == version
        if cached and is_same and len(cached.rows) >= count:
            return cached.rows, cached.inverses
        size = power_of_two(max(count, _MIN_ROWS))
        pairs = torch.atleast_2d(permutation.detach())

        def make() -> Tensor:
            back = pairs.argsort(-1)
            return torch.stack(
                self._after_first(power_table(pairs, size), power_table(back, size), pairs)
            )

        rows, inverses = without_modes(make).unbind()
        self._cache[device] = _Powers(weakref.ref(permutation), version, rows, inverses)
        return rows, inverses


def _permute(x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
    """Gather the features of x (B, T, H, D) by ``index``, and gradients by ``inverse``."""
    if is_transformed():  # any derivative, in any order
        return x.gather(-1, index.expand(x.shape))
    permuted: Tensor = apply_function(_PermuteFeatures, x, index, inverse)
    return permuted


class _PermuteFeatures(torch.autograd.Function):
    """A gather of features whose gradient is a gather by the inverse permutation."""

    @staticmethod
    def forward(x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        return x.gather(-1, index.expand(x.shape))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        index, inverse = ctx.saved_tensors
        return _permute(grad, inverse, index), None, None
