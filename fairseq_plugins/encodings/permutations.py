"""Permutations of features: the odd-even one and the powers of a random one."""

import torch
from torch import Tensor


def odd_even(dim: int) -> Tensor:
    """Index (D,) int64 that gathers features as 2k -> k, 2k+1 -> ceil(D/2) + k (LRPE, Eq. 75).

    The equation as printed maps every odd feature to one place; this follows its pseudocode,
    where element i of the result is element ``index[i]`` of the input.
    """
    index = torch.arange(dim)
    half = dim - dim // 2
    return torch.where(index % 2 == 0, index // 2, half + index // 2)


def power_table(permutation: Tensor, size: int) -> Tensor:
    """Indices (size, D) whose row s gathers features ``permutation`` s times (LRPE, Eq. 59)."""
    rows = [torch.arange(permutation.numel(), device=permutation.device)]
    for _ in range(size - 1):
        rows.append(rows[-1][permutation])
    return torch.stack(rows)


class _PermuteFeatures(torch.autograd.Function):
    """Gather along the last axis; its adjoint is the gather by the inverse permutation."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index)
        return x.gather(-1, index.expand(x.shape))

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (index,) = ctx.saved_tensors
        return _PermuteFeatures.apply(grad, index.argsort(-1)), None


def permute_features(x: Tensor, index: Tensor) -> Tensor:
    """``x[..., index]`` with a permutation per position.

    Args:
        x: (B, H, T, D).
        index: (B or 1, 1 or H, T, D) int64, each row a permutation of 0..D-1.

    Returns:
        (B, H, T, D). The backward pass gathers by the inverse permutations: a plain gather's
        would scatter, which is slower and not deterministic on a GPU.
    """
    result: Tensor = _PermuteFeatures.apply(x, index)
    return result
