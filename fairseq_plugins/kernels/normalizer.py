"""The denominator of linear attention."""

import torch
from torch import Tensor

# Against division by zero where every feature vanishes. Below any other denominator: two features
# of 1 + elu at -30 multiply to 9e-27, and a weighted mean with such weights is still a mean.
MIN_DENOMINATOR = 1e-30
# A floor in place of none under sums that can cancel, as a share of their bound: it is relative,
# and what it lets through stays within float32, gradients included.
LEAST_COSINE = 1e-6


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
