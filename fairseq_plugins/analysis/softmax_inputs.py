"""Inputs of an attention's softmax: scores with all terms of a position encoding."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from fairseq_plugins.attention.softmax import SoftmaxAttention


@contextmanager
def softmax_of(attention: SoftmaxAttention, found: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Keep what goes into the softmax of one attention, and what comes out.

    Where weights are asked for, the attention takes them from one softmax over the keys; what it
    is over has all that an encoding adds, as no formula written a second time could say it.
    """

    class Softmax(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = function(*args, **(kwargs or {}))
            if function is Tensor.softmax:
                found.append((args[0], output))
            return output

    modes: list[Softmax] = []

    def enter(*_: Any) -> None:
        modes.append(Softmax())
        modes[-1].__enter__()

    def leave(*_: Any) -> None:
        modes.pop().__exit__(None, None, None)

    hooks = (
        attention.register_forward_pre_hook(enter),
        attention.register_forward_hook(leave, always_call=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
