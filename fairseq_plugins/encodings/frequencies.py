"""Angles of the sinusoidal and rotary encodings."""

import math
from typing import Literal

import torch
from torch import Tensor

ThetaType = Literal["a", "b", "c"]


def geometric(count: int, dim: int, base: float = 10000.0) -> Tensor:
    """``base ** (-2 t / dim)`` for t = 0..count-1, float64 (LRPE, Appendix C.7)."""
    steps = torch.arange(count, dtype=torch.float64)
    return torch.exp(steps * (-2.0 * math.log(base) / dim))


def theta(theta_type: ThetaType, dim: int, base: float, length: int) -> Tensor:
    """Frequencies of ``dim / 2`` rotations, float64 (LRPE, pseudocode of Appendix C.8).

    Type a is geometric; b rises and c falls with the index, both so that ``length`` positions
    span a quarter turn at the fastest rotation. The pseudocode's ``np.pi / 2 / 1`` is
    ``np.pi / 2 / l``, l the length.
    """
    if theta_type == "a":
        return geometric(dim // 2, dim, base)
    index = torch.arange(1, dim // 2 + 1, dtype=torch.float64)
    quarter = math.pi / 2 / length
    return quarter * index / (dim // 2) if theta_type == "b" else quarter / index
