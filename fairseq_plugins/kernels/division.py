"""Gradients through the division of linear attention by its clamped denominator.

Shapes: N stands for the dimensions of batch and heads, T queries, S keys, D' features, M values.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels.normalizer import MIN_DENOMINATOR


class Slopes(NamedTuple):
    """Gradients through a division, (N, T, 1); None without a division."""

    denominator: Tensor | None = None  # of the unclamped denominator
    floor: Tensor | None = None  # of its lower bound; None without one


def division_gradients(
    row_products: Tensor,
    divisor: Tensor,
    denominator: Tensor,
    floor: Tensor | None,
    epsilon: float | None = None,
) -> Slopes:
    """Compute the gradients of the denominator and its lower bound, all (N, T, 1).

    Args:
        row_products: the output times its gradient, summed over M.
        divisor: the clamped denominator.
        denominator: the unclamped denominator.
        floor: the lower bound, or None.
        epsilon: see ``clamp_denominator``.
    """
    slope = -row_products / divisor
    if epsilon is not None:
        return Slopes(slope.masked_fill(denominator < epsilon, 0.0))
    if floor is None:
        return Slopes(slope.masked_fill(denominator.abs() < MIN_DENOMINATOR, 0.0))
    is_low = denominator.abs() < floor.clamp(min=MIN_DENOMINATOR)
    # The constant MIN_DENOMINATOR has no gradient.
    follows = is_low & (floor >= MIN_DENOMINATOR)
    sign = torch.where(denominator < 0, -1.0, 1.0).to(slope.dtype)
    return Slopes(slope.masked_fill(is_low, 0.0), sign * slope * follows)


def slope_of_norms(slope: Tensor, norms: Tensor) -> Tensor:
    """Return the factor of x in its gradient, from the gradient ``slope`` of its norm.

    Args:
        slope: (N, T, 1) or (N, 1, 1).
        norms: (N, T, 1), of x.

    Returns:
        (N, T, 1); finite at a norm of 0, since 0 times infinity would be NaN.
    """
    # Squares of smaller norms are denormal or 0.
    return slope / norms.clamp(min=torch.finfo(norms.dtype).tiny ** 0.5)
