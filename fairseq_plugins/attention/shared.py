"""What is the same in all layers of a stack is computed once per forward pass."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")


class SharedPass:
    """Values of one forward pass, of which all layers that are given this see the same object.

    Each pass has its own, made with its positions, so that passes side by side know nothing of
    each other. A layer that is computed again in backward (activation checkpointing) ran without
    gradients the first time and has a graph of its own the second: what was kept then is not
    given out now.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._has_graph: bool | None = None

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value under ``key``, made by the first layer that asks."""
        if self._has_graph is None:
            self._has_graph = torch.is_grad_enabled()
        if self._has_graph != torch.is_grad_enabled():
            return make()
        if key not in self._kept:
            self._kept[key] = make()
        value: Value = self._kept[key]
        return value
