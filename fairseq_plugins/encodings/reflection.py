"""The Householder reflection of features."""

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

    @staticmethod
    def forward(ctx, x: Tensor, unit: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(unit)
        return _reflect(x, unit)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return _Reflect.apply(grad, ctx.saved_tensors[0]), None
