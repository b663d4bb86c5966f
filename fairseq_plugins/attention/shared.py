"""What is the same in all layers of a stack is computed once per forward pass."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Value = TypeVar("Value")


class SharedPass:
    """Values of the forward pass that is running, of which all layers see the same object.

    Outside ``running`` nothing is kept: an attention by itself, or a layer that is computed again
    in backward (activation checkpointing), makes its own.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """The forward pass of a stack, whose self-attentions have the same tokens."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value under ``key``, made by the first layer that asks."""
        if self._kept is None:
            return make()
        if key not in self._kept:
            self._kept[key] = make()
        value: Value = self._kept[key]
        return value
