"""Rotations in planes of two features, by an angle that grows with the position."""

from typing import Literal

import torch
from torch import Tensor

Layout = Literal["interleaved", "half_split"]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout = "interleaved") -> Tensor:
    """Rotate the leading features of ``x`` in pairs; the rest pass unchanged.

    Args:
        x: (..., T, D).
        cos: (..., T, E / 2), broadcast against ``x``, with E <= D rotated features.
        sin: like ``cos``.
        layout: features (0, 1), (2, 3), ... are a pair (``interleaved``), or (0, E/2),
            (1, E/2 + 1), ... (``half_split``).

    Returns:
        (..., T, D) in the dtype of ``x``, computed in the wider of the dtypes.
    """
    rotated = 2 * cos.size(-1)
    head, rest = x[..., :rotated], x[..., rotated:]
    if layout == "interleaved":
        first, second = head[..., ::2], head[..., 1::2]
    else:
        first, second = head.chunk(2, dim=-1)
    new_first = first * cos - second * sin
    new_second = second * cos + first * sin
    if layout == "interleaved":
        turned = torch.stack((new_first, new_second), dim=-1).flatten(-2)
    else:
        turned = torch.cat((new_first, new_second), dim=-1)
    turned = turned.to(x.dtype)
    return torch.cat((turned, rest), dim=-1) if rest.size(-1) else turned
