"""Records of attention: scores with all terms of a position encoding, and weights by head."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
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


@contextmanager
def recorded_heads(attentions: Sequence[nn.Module]) -> Iterator[dict[nn.Module, tuple[Any, Any]]]:
    """Record the input (B, T, C) of queries and the weights (B, H, T, S) of each attention.

    Of an attention that runs several times, the last record stays.
    """
    found: dict[nn.Module, tuple[Any, Any]] = {}

    def request(_: nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**options, "need_head_weights": True}

    def record(module: nn.Module, args: Any, options: dict[str, Any], output: Any) -> None:
        query = options["query"] if "query" in options else args[0]
        found[module] = query.transpose(0, 1), output[1].transpose(0, 1)

    hooks = [one.register_forward_pre_hook(request, with_kwargs=True) for one in attentions]
    hooks += [one.register_forward_hook(record, with_kwargs=True) for one in attentions]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
