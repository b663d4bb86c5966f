"""Angles of the sinusoidal and rotary encodings."""

import math
from typing import Literal

import torch
from torch import Tensor

ThetaType = Literal["a", "b", "c"]
Device = torch.device | str | None


def geometric(count: int, dim: int, base: float = 10000.0, device: Device = None) -> Tensor:
    """Return ``base ** (-2 t / dim)`` for t = 0..count-1, float64 (LRPE, Appendix C.7)."""
    steps = torch.arange(count, dtype=torch.float64, device=device)
    return torch.exp(steps * (-2.0 * math.log(base) / dim))


def theta(
    theta_type: ThetaType, dim: int, base: float, length: int, device: Device = None
) -> Tensor:
    """Return the frequencies of ``dim / 2`` rotations, float64 (LRPE, pseudocode of Appendix C.8).

    Type a is geometric; b rises and c falls with the index, both so that ``length`` positions
    span a quarter turn at the fastest rotation. The pseudocode's ``np.pi / 2 / 1`` is
    ``np.pi / 2 / l``, l the length.
    """
    if theta_type == "a":
        return geometric(dim // 2, dim, base, device)
    index = torch.arange(1, dim // 2 + 1, dtype=torch.float64, device=device)
    quarter = math.pi / 2 / length
    return quarter * index / (dim // 2) if theta_type == "b" else quarter / index


def sinusoidal_frequencies(dim: int, device: Device = None) -> Tensor:
    """Return w_j = 10000^(-2(j-1)/dim), j = 1..dim/2, float64: one per pair of features."""
    return geometric(dim // 2, dim, device=device)


def learned_from(frequencies: Tensor) -> Tensor:
    """Return the initial values of learned frequencies, in the dtype of other parameters."""
    return frequencies.to(torch.get_default_dtype())


def fairseq_frequencies(dim: int, device: Device = None) -> Tensor:
    """Return fairseq's w_j = 10000^(-j/(dim/2 - 1)), j = 0..dim/2 - 1, float64."""
    return geometric(dim // 2, 2 * (dim // 2 - 1), device=device)


def fixed_sinusoids(positions: Tensor, dim: int) -> Tensor:
    """Return ``sinusoids`` of ``sinusoidal_frequencies``: (...) -> (..., dim) float64."""
    return sinusoids(positions, sinusoidal_frequencies(dim, positions.device))


def sinusoids(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Return [sin(w_1 s), cos(w_1 s), sin(w_2 s), ...]: (...), (n,) -> (..., 2n) float64.

    Float64, because float32 loses three digits of an angle at position 10,000.
    """
    angles = positions.double().unsqueeze(-1) * frequencies.double()
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
