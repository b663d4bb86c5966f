"""Inputs of an attention's softmax: scores with all terms of a position encoding."""

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class RecordedSoftmax(TorchFunctionMode):
    """A context that records the (input, output) of each softmax in `found`.

    With `need_weights`, the attention calls one softmax over the keys. Its input has all terms of
    the encoding, so that their formulas are not written a second time here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if function is Tensor.softmax:
            self.found.append((args[0], output))
        return output
