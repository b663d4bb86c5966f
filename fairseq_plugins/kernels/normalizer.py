"""The denominator of linear attention."""

import torch
from torch import Tensor

# With an encoded normaliser the terms have both signs (about 1% of them are negative at random
# inputs), so that the sum can come near zero. A denominator is head_dim x context at typical
# features of order one; this bound is far below any that occurs by design.
MIN_DENOMINATOR = 1e-3


def clamp_denominator(denominator: Tensor) -> Tensor:
    """Move values within ``MIN_DENOMINATOR`` of zero out to it, keeping their sign (0 is +)."""
    sign = torch.where(denominator < 0, -1.0, 1.0).to(denominator.dtype)
    return sign * denominator.abs().clamp(min=MIN_DENOMINATOR)
