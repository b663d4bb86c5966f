"""The denominator of linear attention."""

import torch
from torch import Tensor

# Avoids division by zero where every feature is 0. Other denominators are larger: the product of
# two features of 1 + elu at -30 is 9e-27, and weights of that size still give a correct mean.
MIN_DENOMINATOR = 1e-30
# Lower bound of denominators that can cancel, as a share of their maximum, with ``min_cosine=0``:
# values and gradients stay in float32's range.
LEAST_COSINE = 1e-6


def clamp_denominator(
    denominator: Tensor, floor: Tensor | float | None = None, epsilon: float | None = None
) -> Tensor:
    """Clamp absolute values to at least ``floor``, keeping their sign (that of 0 is +).

    Args:
        denominator: (..., 1).
        floor: not negative, broadcast against the denominator; None or less than
            ``MIN_DENOMINATOR`` is that constant.
        epsilon: in place of ``floor``, the lower bound of the values themselves, so that negative
            ones become epsilon.
    """
    if epsilon is not None:
        return denominator.clamp(min=epsilon)
    sign = torch.where(denominator < 0, -1.0, 1.0).to(denominator.dtype)
    if floor is None:
        return sign * denominator.abs().clamp(min=MIN_DENOMINATOR)
    floor = torch.as_tensor(floor, dtype=denominator.dtype, device=denominator.device)
    return sign * torch.maximum(denominator.abs(), floor.clamp(min=MIN_DENOMINATOR))


def norms(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return Euclidean norms of the features: (..., D) -> (..., 1) in ``dtype``."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
