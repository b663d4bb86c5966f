"""Permutations of features: the odd-even one and the powers of a random one."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.ends import end_of


def odd_even(dim: int) -> Tensor:
    """Index (D,) int64 that gathers features as 2k -> k, 2k+1 -> ceil(D/2) + k (LRPE, Eq. 75).

    The equation as printed maps every odd feature to one place; this follows its pseudocode,
    where element i of the result is element ``index[i]`` of the input.
    """
    index = torch.arange(dim)
    half = dim - dim // 2
    return torch.where(index % 2 == 0, index // 2, half + index // 2)


def power_table(permutation: Tensor, size: int) -> Tensor:
    """Indices (size, ..., D) of the powers of permutations (..., D) (LRPE, Eq. 59).

    Row s gathers features ``permutation`` s times. Power s + n is power s gathered by power n,
    so that the rows double at every turn.
    """
    table = torch.arange(permutation.size(-1), device=permutation.device)
    table = table.expand_as(permutation).unsqueeze(0)
    step = permutation
    while table.size(0) < size:
        rest = table[: size - table.size(0)]
        table = torch.cat((table, rest.gather(-1, step.expand_as(rest))))
        step = step.gather(-1, step)
    return table


class PermutationPowers(nn.Module):
    """Permutes features as often as their position says, by powers of fixed permutations.

    The powers are kept, and extended when a longer position comes, with their inverses: a plain
    gather's backward pass would scatter, which is slower and not deterministic on a GPU.

    The rows are no part of the state dict: an encoding makes them with its permutation, and again
    when another is loaded (``make_rows``).

    Args:
        size: rows to start with.
        first: (D,), a permutation that features are gathered by before any of the powers.
    """

    rows: Tensor
    inverses: Tensor

    def __init__(self, size: int, first: Tensor | None = None) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("first", first, persistent=False)
        for name in ("rows", "inverses"):
            self.register_buffer(name, torch.empty(0, 1, 0, dtype=torch.int64), persistent=False)

    def make_rows(self, permutation: Tensor, size: int) -> None:
        """The powers 0..size - 1 of a permutation, (D,) or (H, D)."""
        permutation = torch.atleast_2d(permutation)
        self.rows = power_table(permutation, size)
        self.inverses = power_table(permutation.argsort(-1), size)
        first = self._buffers["first"]
        if first is not None:
            self.rows = first[self.rows]
            self.inverses = self.inverses[..., first.argsort()]

    @torch.compiler.disable(reason="a table of positions grows once for many passes")
    def _grow(self, permutation: Tensor, size: int) -> None:
        # Doubling keeps the number of rebuilds logarithmic when decoding token by token.
        self.make_rows(permutation, max(size, self.size, 2 * self.rows.size(0)))

    def forward(self, x: Tensor, permutation: Tensor, positions: Tensor) -> Tensor:
        """Features of token s gathered ``permutation`` s times.

        Args:
            x: (B, H, T, D), or (B, H, T, 2D) for two halves that are permuted alike.
            permutation: (D,), or (H, D) with one per head; always the same.
            positions: (B or 1, T).

        Returns:
            The shape of ``x``.
        """
        end = max(1, end_of(positions, self.rows.size(0)))
        if end > self.rows.size(0):
            self._grow(permutation, end)
        index, inverse = (
            table.index_select(0, positions.flatten()).unflatten(0, positions.shape)
            for table in (self.rows, self.inverses)
        )
        # Tokens before heads, as projections leave them in memory: a gather takes half the time.
        halves = x.transpose(1, 2).split(index.size(-1), dim=-1)
        permuted = [_PermuteFeatures.apply(half, index, inverse) for half in halves]
        whole = permuted[0] if len(permuted) == 1 else torch.cat(permuted, dim=-1)
        return whole.transpose(1, 2)


class _PermuteFeatures(torch.autograd.Function):
    """x[..., index], index (B or 1, T, 1 or H, D); its adjoint is the gather by the inverse."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index, inverse)
        return x.gather(-1, index.expand(x.shape))

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        index, inverse = ctx.saved_tensors
        return _PermuteFeatures.apply(grad, inverse, index), None, None
