"""Positions of tokens, from the padding mask and the decoding step."""

import torch
from torch import Tensor


def make_positions(
    padding_mask: Tensor | None,
    length: int,
    *,
    offset: Tensor | int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """0-based positions that do not count padding, on whichever side it is.

    Args:
        padding_mask: (B, T) bool, True where padded; None where nothing is.
        length: T, used where there is no mask.
        offset: tokens before the first, an integer or (B, 1) int64.
        device: of the result, used where there is no mask.

    Returns:
        (B, T) int64, or (1, T) where neither mask nor offset differ within the batch. Padding
        before the first token has its position.
    """
    if padding_mask is None:
        return torch.arange(length, device=device).unsqueeze(0) + offset
    counts = (~padding_mask).long().cumsum(1) - 1
    return counts.clamp(min=0) + offset
