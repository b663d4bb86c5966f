"""Rotations in planes of two features, by an angle that grows with the position."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Layout = Literal["interleaved", "half_split"]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout = "interleaved") -> Tensor:
    """Rotate the leading features of ``x`` in pairs; the rest pass unchanged.

    Args:
        x: (..., T, D).
        cos: (..., T, E / 2) float32 or wider, broadcast against ``x``, with E <= D rotated
            features.
        sin: like ``cos``.
        layout: features (0, 1), (2, 3), ... are a pair (``interleaved``), or (0, E/2),
            (1, E/2 + 1), ... (``half_split``).

    Returns:
        (..., T, D) in the dtype of ``x``, computed in the wider of the dtypes.
    """
    rotated = 2 * cos.size(-1)
    if layout == "interleaved" and x.size(-1) % 2 == 0 and not torch.compiler.is_compiling():
        # A pair is a complex number: one multiplication.
        wide = x.to(torch.promote_types(x.dtype, cos.dtype))
        return _turn(as_complex(wide), cos, sin).to(x.dtype)
    head, rest = x[..., :rotated], x[..., rotated:]
    if layout == "interleaved":
        turned = _turn_real(head[..., ::2], head[..., 1::2], cos, sin)
    else:
        first, second = head.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    turned = turned.to(x.dtype)
    return torch.cat((turned, rest), dim=-1) if rest.size(-1) else turned


def rotate_odd_even(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``rotate`` of ``x[..., odd_even(D)]``, D even, without the gather.

    The odd-even permutation puts feature D/2 + j beside feature j: another pairing, which the
    complex numbers are made by. A shorter ``cos`` leaves the last pairs as they are.
    """
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    first, second = wide.chunk(2, dim=-1)
    if torch.compiler.is_compiling():
        return _turn_real(first, second, *_widen(cos, sin, first.size(-1))).to(x.dtype)
    return _turn(torch.complex(first, second), cos, sin).to(x.dtype)


def as_complex(x: Tensor) -> Tensor:
    """Pairs of neighbours (..., D) as numbers (..., D / 2), copied only where they must be."""
    starts = (*x.stride()[:-1], x.storage_offset())
    if x.stride(-1) != 1 or any(start % 2 for start in starts):
        # Not by `contiguous`, which leaves alone what merely begins at an odd place.
        x = x.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _widen(cos: Tensor, sin: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(..., n) -> (..., count), with angles of 0 at the end."""
    missing = (0, count - cos.size(-1))
    return functional.pad(cos, missing, value=1.0), functional.pad(sin, missing)


def _turn_real(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``_turn`` of first + i second, written out: (..., D / 2) twice -> (..., D).

    The compiler has no code of its own for complex numbers, and the one it falls back on sums
    their gradients wrongly in some layouts (PyTorch 2.13).
    """
    parts = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(parts, dim=-1).flatten(-2)


def _turn(pairs: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(..., D / 2) complex -> (..., D) real, multiplied by cos + i sin; by 1 beyond those."""
    real = pairs.real.dtype
    cos, sin = _widen(cos, sin, pairs.size(-1))
    return torch.view_as_real(pairs * torch.complex(cos.to(real), sin.to(real))).flatten(-2)
