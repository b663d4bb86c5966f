"""Refusal of second derivatives by backward passes that have the first alone."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


def first_derivative(backward: Backward) -> Backward:
    """Decorate a backward pass so that differentiating its results raises an error.

    PyTorch's ``once_differentiable`` raises it in ``Tensor.backward`` alone: ``autograd.grad`` of
    chosen inputs would silently leave out terms.

    Args:
        backward: gets the saved tensors as its second argument, since checkpointing allows them to
            be unpacked once.
    """

    @wraps(backward)
    def run(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return backward(ctx, saved, *grads)
        with torch.no_grad():
            results = backward(ctx, saved, *grads)
        sources = [x for x in (*grads, *saved) if x is not None and x.requires_grad]
        if not sources:
            return results
        refused: tuple[Tensor | None, ...] = _Refusal.apply(len(sources), *sources, *results)
        return refused

    return run


class _Refusal(torch.autograd.Function):
    """Results whose derivatives with respect to their ``count`` sources raise an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(None if x is None else x.detach() for x in tensors[count:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        raise RuntimeError(
            "`create_graph` must be False here: this backward pass gives first derivatives alone. "
            "Transforms of `torch.func` give linear attention's second ones."
        )
