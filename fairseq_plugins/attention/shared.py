"""A cache of values that all layers of a stack share in one forward pass."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")


class SharedPass:
    """Cache of one forward pass, such as position biases; all layers of the pass share it.

    Each pass creates its own with its positions, so that concurrent passes are independent. Under
    activation checkpointing a layer first runs without gradients and again in backward with a
    graph of its own: values cached in one mode are not used in the other.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._has_graph: bool | None = None

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value under ``key``, computed by the first layer that needs it."""
        if self._has_graph is None:
            self._has_graph = torch.is_grad_enabled()
        if self._has_graph != torch.is_grad_enabled():
            return make()
        if key not in self._kept:
            self._kept[key] = make()
        value: Value = self._kept[key]
        return value
