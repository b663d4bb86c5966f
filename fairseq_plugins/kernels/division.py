"""Gradients at the division of linear attention, of its denominator and of the floor under it.

Shapes: T queries, S keys, D' features, M values; N = B H.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels.normalizer import MIN_DENOMINATOR, clamp_denominator


class Slopes(NamedTuple):
    """Gradients at a division, each (N, T, 1) and None where nothing is divided.

    Attributes:
        divisor: what the gradient of the output is divided by in that of the numerator.
        denominator: the gradient of the raw denominator.
        floor: the gradient of the floor in its place; None where there is no floor.
    """

    divisor: Tensor | None = None
    denominator: Tensor | None = None
    floor: Tensor | None = None


def undo_division(
    grad: Tensor,
    output: Tensor,
    denominator: Tensor,
    floor: Tensor | None,
    borders: list[slice],
) -> Slopes:
    """From the gradient (N, T, M) of ``output`` to those of what it was made of.

    Between one border and the next, where a product of the size of the output would be more
    memory than all else that is made.
    """
    divisor = clamp_denominator(denominator, 0.0 if floor is None else floor)
    slope = torch.empty_like(denominator)
    for rows in borders:
        along = grad[:, rows].to(denominator.dtype) * output[:, rows]
        slope[:, rows] = along.sum(-1, keepdim=True)
    slope.div_(divisor).neg_()
    if floor is None:
        return Slopes(divisor, slope.masked_fill(denominator.abs() < MIN_DENOMINATOR, 0.0))
    is_low = denominator.abs() < floor.clamp(min=MIN_DENOMINATOR)
    # Where the least of all denominators stands in, there is nothing to follow.
    follows = is_low & (floor >= MIN_DENOMINATOR)
    sign = torch.where(denominator < 0, -1.0, 1.0).to(slope.dtype)
    return Slopes(divisor, slope.masked_fill(is_low, 0.0), sign * slope * follows)


def slope_of_norms(slope: Tensor, norms: Tensor) -> Tensor:
    """What x is multiplied by in its gradient where its norm has the gradient ``slope``.

    Args:
        slope: (N, T, 1).
        norms: (N, T, 1), of x.

    Returns:
        (N, T, 1), finite: 0 times infinity would be NaN where x is zero.
    """
    # Squares of anything smaller are no numbers any more, so that neither is a norm.
    return slope / norms.clamp(min=torch.finfo(norms.dtype).tiny ** 0.5)
