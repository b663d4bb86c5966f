"""What is the same in all layers of a stack is computed once per forward pass."""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Value = TypeVar("Value")


class _Kept(threading.local):
    def __init__(self) -> None:
        self.values: dict[Hashable, Any] | None = None


class SharedPass:
    """Values of the forward pass that is running, of which all layers see the same object.

    Outside ``running`` nothing is kept: an attention by itself, or a layer that is computed again
    in backward (activation checkpointing), makes its own. Threads that run one model side by side
    have a pass each.
    """

    def __init__(self) -> None:
        self._kept = _Kept()

    def __reduce__(self) -> tuple[type["SharedPass"], tuple[()]]:
        """A copy has a pass of its own, one for all layers that share this one."""
        return SharedPass, ()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The forward pass of a stack, whose self-attentions have the same tokens."""
        self._kept.values = {}
        try:
            yield
        finally:
            self._kept.values = None

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value under ``key``, made by the first layer that asks."""
        kept = self._kept.values
        if kept is None:
            return make()
        if key not in kept:
            kept[key] = make()
        value: Value = kept[key]
        return value
