"""The denominator of linear attention."""

import torch
from torch import Tensor

# Against division by zero where every feature vanishes; far below any other denominator.
MIN_DENOMINATOR = 1e-6


def clamp_denominator(
    denominator: Tensor, floor: Tensor | float | None = None, epsilon: float | None = None
) -> Tensor:
    """Move values within ``floor`` of zero out to it, keeping their sign (that of 0 is +).

    Args:
        denominator: (..., 1).
        floor: not negative, broadcast against it; at least ``MIN_DENOMINATOR`` is used, and
            nothing but that where it is None.
        epsilon: replace all values below it by it, negative ones too, in place of the above.
    """
    if epsilon is not None:
        return denominator.clamp(min=epsilon)
    sign = torch.where(denominator < 0, -1.0, 1.0).to(denominator.dtype)
    if floor is None:
        return sign * denominator.abs().clamp(min=MIN_DENOMINATOR)
    floor = torch.as_tensor(floor, dtype=denominator.dtype, device=denominator.device)
    return sign * torch.maximum(denominator.abs(), floor.clamp(min=MIN_DENOMINATOR))


def norms(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Euclidean norms of the features: (..., D) -> (..., 1) in ``dtype``."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
