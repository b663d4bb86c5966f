"""How far positions reach, without waiting for a GPU where the caller knows."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class _Promise(threading.local):
    def __init__(self) -> None:
        self.end: int | None = None


_promise = _Promise()


@contextmanager
def positions_below(end: int | None) -> Iterator[None]:
    """Promise that all positions given to encodings in this block are below ``end``.

    A caller who counted them knows, and tables then need not ask for the largest, which a GPU
    answers only after all its work. None takes back the promise of a block around this one.
    """
    before = _promise.end
    _promise.end = end
    try:
        yield
    finally:
        _promise.end = before


def promised_end() -> int | None:
    """What ``positions_below`` promises here, or None."""
    return _promise.end


def end_of(positions: Tensor, enough: int) -> int:
    """A number that ``positions`` (any shape, int64) are below, above ``enough`` only if needed.

    The promised one while that is at most ``enough``, else exactly the largest position plus 1,
    which costs a wait. A compiled graph cannot wait: there a promise always counts, and without
    one the positions are asserted, on their device, to be below ``enough``.

    Raises:
        RuntimeError: in a compiled graph, for positions from ``enough`` on without a promise.
    """
    end, is_compiling = _promise.end, torch.compiler.is_compiling()
    if end is not None and (end <= enough or is_compiling):
        return end
    if not is_compiling:
        return int(positions.max()) + 1 if positions.numel() else 0
    torch._assert_async(
        (positions < enough).all(),
        f"`positions` must be below {enough} in a compiled graph, whose tables cannot grow; give "
        "a larger `max_positions`, or run once uncompiled with the longest sequence.",
    )
    return enough
