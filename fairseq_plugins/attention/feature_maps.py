"""Feature maps phi of linear attention: positive functions of each query and key feature."""

from collections.abc import Callable

import torch
from torch import Tensor


def elu_plus_one(x: Tensor) -> Tensor:
    """phi(x) = 1 + elu(x) (Katharopoulos et al. 2020), as exp(x) below zero.

    ``elu(x) + 1`` is exactly 0 at -8 in bfloat16; exp keeps it positive. The minimum keeps the
    unused branch, and with it the gradient, finite.
    """
    return torch.where(x >= 0, x + 1, x.clamp(max=0).exp())


def relu_shifted(x: Tensor) -> Tensor:
    """phi(x) = relu(x) + 1e-3, the map of PermuteFormer (Chen 2021)."""
    return torch.relu(x) + 1e-3


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": elu_plus_one,
    "relu": torch.relu,
    "relu_shifted": relu_shifted,
}
