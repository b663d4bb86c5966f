"""Rotations of pairs of features by angles."""

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
        # A pair as a complex number takes one multiplication.
        wide = x.to(torch.promote_types(x.dtype, cos.dtype))
        return _turn(as_complex(wide), cos, sin).to(x.dtype)
    is_whole = rotated == x.size(-1)
    head = x if is_whole else x[..., :rotated]
    if layout == "interleaved":
        turned = _turn_real(head[..., ::2], head[..., 1::2], cos, sin)
    else:
        first, second = head.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    turned = turned.to(x.dtype)
    return turned if is_whole else torch.cat((turned, x[..., rotated:]), dim=-1)


def rotate_odd_even(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return ``rotate`` of ``x[..., odd_even(D)]``, D even, without the gather.

    The odd-even permutation pairs feature j with D/2 + j, from which complex numbers are built
    directly. A shorter ``cos`` leaves the last pairs unchanged.
    """
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    first, second = wide.chunk(2, dim=-1)
    if torch.compiler.is_compiling():
        return _turn_real(first, second, *_widen(cos, sin, first.size(-1))).to(x.dtype)
    return _turn(torch.complex(first, second), cos, sin).to(x.dtype)


def as_complex(x: Tensor) -> Tensor:
    """View pairs of neighbours (..., D) as complex (..., D / 2), copied only if necessary."""
    starts = (*x.stride()[:-1], x.storage_offset())
    if x.stride(-1) != 1 or any(start % 2 for start in starts):
        # Not `contiguous`, which does not copy a tensor with an odd storage offset.
        x = x.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(x.view(*x.shape[:-1], x.size(-1) // 2, 2))


def _widen(cos: Tensor, sin: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Pad with angles of 0: (..., n) -> (..., count)."""
    if cos.size(-1) == count:
        return cos, sin
    missing = (0, count - cos.size(-1))
    return functional.pad(cos, missing, value=1.0), functional.pad(sin, missing)


def _turn_real(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Compute ``_turn`` of first + i second with real numbers: 2 x (..., D / 2) -> (..., D).

    For torch.compile, which has no code for complex numbers; its fallback sums their gradients
    wrongly in some layouts (PyTorch 2.13).
    """
    parts = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(parts, dim=-1).flatten(-2)


def _turn(pairs: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Multiply by cos + i sin (by 1 beyond them): (..., D / 2) complex -> (..., D) real."""
    real = pairs.real.dtype
    cos, sin = _widen(cos, sin, pairs.size(-1))
    return torch.view_as_real(pairs * torch.complex(cos.to(real), sin.to(real))).flatten(-2)
