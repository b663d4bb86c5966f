"""The Householder reflection of features."""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels.backend import apply_function, is_transformed


def reflect(x: Tensor, unit: Tensor) -> Tensor:
    """Reflect x: x - 2 u (u.x), with a gradient to ``unit`` only if it requires one (LRPE, Eq. 74).

    Args:
        x: (..., D).
        unit: u, (D,), of length 1.
    """
    if unit.requires_grad or not torch.is_grad_enabled() or is_transformed():
        return _reflect(x, unit)
    reflected: Tensor = apply_function(_Reflect, x, unit)
    return reflected


def _reflect(x: Tensor, unit: Tensor) -> Tensor:
    # A sum of products, since a matrix product with one column takes twice as long.
    return torch.addcmul(x, (x * unit).sum(-1, keepdim=True), unit, value=-2)


class _Reflect(torch.autograd.Function):
    """The reflection for a fixed u, which is its own adjoint, so that only u is saved."""

    @staticmethod
    def forward(x: Tensor, unit: Tensor) -> Tensor:
        return _reflect(x, unit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return apply_function(_Reflect, grad, ctx.saved_tensors[0]), None
