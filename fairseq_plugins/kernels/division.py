"""Gradients at the division of linear attention, of its denominator and of the floor under it.

Shapes: T queries, S keys, D' features, M values; N = B H.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels.normalizer import MIN_DENOMINATOR


class Slopes(NamedTuple):
    """Gradients at a division, each (N, T, 1) and None where nothing is divided.

    Attributes:
        denominator: the gradient of the raw denominator.
        floor: the gradient of the floor in its place; None where there is no floor.
    """

    denominator: Tensor | None = None
    floor: Tensor | None = None


def undo_division(
    along: Tensor,
    divisor: Tensor,
    denominator: Tensor,
    floor: Tensor | None,
    epsilon: float | None = None,
) -> Slopes:
    """Gradients of what a division was made of; all are (N, T, 1).

    Args:
        along: the output times its gradient, summed over M.
        divisor: the denominator as it was divided by, clamped to its floor.
        denominator: before that.
        floor: None where there was none.
        epsilon: see ``clamp_denominator``.
    """
    slope = -along / divisor
    if epsilon is not None:
        return Slopes(slope.masked_fill(denominator < epsilon, 0.0))
    if floor is None:
        return Slopes(slope.masked_fill(denominator.abs() < MIN_DENOMINATOR, 0.0))
    is_low = denominator.abs() < floor.clamp(min=MIN_DENOMINATOR)
    # Where the least of all denominators stands in, there is nothing to follow.
    follows = is_low & (floor >= MIN_DENOMINATOR)
    sign = torch.where(denominator < 0, -1.0, 1.0).to(slope.dtype)
    return Slopes(slope.masked_fill(is_low, 0.0), sign * slope * follows)


def slope_of_norms(slope: Tensor, norms: Tensor) -> Tensor:
    """What x is multiplied by in its gradient where its norm has the gradient ``slope``.

    Args:
        slope: (N, T, 1) or (N, 1, 1).
        norms: (N, T, 1), of x.

    Returns:
        (N, T, 1). At a norm of 0 it is as small as can be told from 0, since 0 times infinity
        would be NaN.
    """
    # The square of a smaller norm is denormal or 0, so that it could not be computed.
    return slope / norms.clamp(min=torch.finfo(norms.dtype).tiny ** 0.5)
