"""The Householder reflection of features."""

from typing import Any

import torch
from torch import Tensor


def reflect(x: Tensor, unit: Tensor) -> Tensor:
    """x - 2 u (u.x), with a gradient to ``unit`` only where that is learned (LRPE, Eq. 74).

    Args:
        x: (..., D).
        unit: u, (D,), of length 1.
    """
    if unit.requires_grad:
        return _reflect(x, unit)
    reflected: Tensor = _Reflect.apply(x, unit)
    return reflected


def _reflect(x: Tensor, unit: Tensor) -> Tensor:
    # A sum of products and not a matrix product, which takes twice as long for one column.
    return torch.addcmul(x, (x * unit).sum(-1, keepdim=True), unit, value=-2)


class _Reflect(torch.autograd.Function):
    """A reflection is its own adjoint; nothing but u has to be kept for it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, unit: Tensor) -> Tensor:
        return _reflect(x, unit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Reflect.apply(grad, ctx.saved_tensors[0]), None
