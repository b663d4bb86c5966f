"""Inputs of an attention's softmax: scores with all terms of a position encoding."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from fairseq_plugins.attention.softmax import SoftmaxAttention


@contextmanager
def record_softmax(
    attention: SoftmaxAttention, found: list[tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Append the (input, output) of an attention's softmax to `found`.

    With `need_weights`, the attention calls one softmax over the keys. Its input has all terms of
    the encoding, so that their formulas are not written a second time here.
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
