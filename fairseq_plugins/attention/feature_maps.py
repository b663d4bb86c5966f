"""Feature maps phi of linear attention: positive functions of each query and key feature."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels.backend import apply_function, is_transformed


def elu_plus_one(x: Tensor) -> Tensor:
    """Return phi(x) = 1 + elu(x) (Katharopoulos et al. 2020), as exp(x) below zero.

    ``elu(x) + 1`` is exactly 0 at -8 in bfloat16; exp stays positive.
    """
    if is_transformed():  # any derivative, in any order
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())
    mapped: Tensor = apply_function(_EluPlusOne, x)
    return mapped


class _EluPlusOne(torch.autograd.Function):
    """exp(min(x, 0)) + max(x, 0), with the slope min(phi(x), 1).

    ``torch.where`` of two branches takes three times as many passes over memory, and its gradient
    multiplies the slope of the unused branch by zero, so that this must stay finite.
    """

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=0).exp_().add_(x.clamp(min=0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (mapped,) = ctx.saved_tensors
        return mapped.clamp(max=1).mul_(grad)


def relu_shifted(x: Tensor) -> Tensor:
    """Return phi(x) = relu(x) + 1e-3, the map of PermuteFormer (Chen 2021)."""
    return torch.relu(x) + 1e-3


# Maps with which the product of a query and a key can be exactly 0.
VANISHING_MAPS = frozenset({"relu"})

FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": elu_plus_one,
    "relu": torch.relu,
    "relu_shifted": relu_shifted,
}
