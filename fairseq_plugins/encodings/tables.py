"""Cached constants that follow from sizes alone, such as tables of sinusoids.

A module holds a formula and no tensor, so that no wrapper can synchronise, average, shard, save or
lose it on the meta device. Values are computed in float64 on a CPU, the same for every device, and
cached in float32 per formula and device. Where operations are only recorded (a compiled or exported
graph, the capture of a CUDA graph), the formula is recorded instead.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.encodings.position_bounds import (
    bounds_of,
    check_lowest,
    check_not_negative,
    end_of,
    is_recorded,
)

_MAX_CACHED = 64  # tensors; the least recently used go first
_MIN_ROWS = 256
# Rows of the largest table in the cache; beyond it, each call computes the rows that it needs.
_MAX_ROWS = 2**17
_ONCE = "_once"  # attribute of positions: what was computed from them


@dataclass(frozen=True)
class Formula:
    """A function with its last arguments bound: hashable, comparable and picklable."""

    function: Callable[..., Tensor]  # of a module
    arguments: tuple[Hashable, ...] = ()  # its last positional ones

    def __call__(self, *first: Any, **named: Any) -> Tensor:
        return self.function(*first, *self.arguments, **named)


@dataclass(frozen=True)
class Constant:
    """A cached tensor."""

    formula: Formula  # called with ``device``; floating point results are kept in float32

    def on(self, like: Tensor) -> Tensor:
        """Return the tensor on the device of ``like``."""
        if is_recorded(like):
            return _narrow(self.formula(device=like.device))
        return _cached(self, like.device, 0, lambda: self.formula(device="cpu"))


@dataclass(frozen=True)
class PositionTable:
    """A cached table of a function's values at positions 0, 1, ..., which grows by doubling."""

    formula: Formula  # positions (...) float64 of any sign -> rows (..., *row) float64

    def at(self, positions: Tensor) -> Tensor:
        """Evaluate the formula at ``positions`` of any sign, without the cached table."""
        return _narrow(self.formula(positions.double()))

    def __call__(self, positions: Tensor, absolute: str | None = None) -> Tensor:
        """Return the rows at ``positions`` (any shape, int64): ``positions.shape`` + row, float32.

        Args:
            positions: of any sign.
            absolute: name of the encoding, if it does not support negative positions.

        Raises:
            ValueError: a negative position for such an encoding.
        """
        if is_recorded(positions):
            if absolute is not None:
                check_not_negative(absolute, positions)
            return self.at(positions)
        low, end = bounds_of(positions)
        if absolute is not None:
            check_lowest(absolute, low)
        if not suits_table(positions, low, end):
            return self.at(positions)
        size = power_of_two(max(end, _MIN_ROWS))

        def make() -> Tensor:
            return self.formula(torch.arange(size, dtype=torch.float64, device="cpu"))

        return _cached(self, positions.device, size, make)[positions]


def suits_table(positions: Tensor, low: int, end: int) -> bool:
    """Return whether a table of ``end`` rows is worth its memory for these positions."""
    return low >= 0 and end <= max(_MAX_ROWS, 4 * positions.numel())


def once_per_positions(key: object, positions: Tensor, make: Callable[[], Any]) -> Any:
    """Call ``make`` once for all layers that share the tensor ``positions``, and return its result.

    The result is an attribute of the tensor, until a call has another key or the tensor is written
    to. In inference mode nothing is kept: backward could not use it later.
    """
    if is_recorded(positions) or torch.is_inference_mode_enabled() or positions.is_inference():
        return make()
    kept = getattr(positions, _ONCE, None)
    version = positions._version
    if not isinstance(kept, _Kept) or kept.version != version or kept.key != key:
        kept = _Kept(key, version, make())
        setattr(positions, _ONCE, kept)
    return kept.result


@dataclass(frozen=True, eq=False)
class _Kept:
    """A result, under the key and the version of the positions that it was computed from."""

    key: object
    version: int
    result: Any

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied or saved with the positions it is empty, of a type that torch.load accepts.
        return OrderedDict, ()


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << max(size - 1, 0).bit_length()


_tensors: dict[tuple[Hashable, torch.device], Tensor] = {}
_lock = threading.Lock()


def _cached(key: Hashable, device: torch.device, size: int, make: Callable[[], Tensor]) -> Tensor:
    """Return the cached tensor of a formula on a device, with at least ``size`` rows."""
    with _lock:
        tensor = _tensors.pop((key, device), None)
        if tensor is not None and (not size or len(tensor) >= size):
            _tensors[key, device] = tensor  # now the most recently used
            return tensor
    tensor = without_modes(lambda: _narrow(make()).to(device))
    with _lock:
        _tensors[key, device] = tensor
        while len(_tensors) > _MAX_CACHED:
            del _tensors[next(iter(_tensors))]
    return tensor


def without_modes(make: Callable[[], Tensor]) -> Tensor:
    """Call ``make`` without the caller's modes of computation.

    It runs in a new thread, where the caller's inference mode, autocast, default device, transforms
    of ``torch.func`` and dispatch modes have no effect: later callers use the cached result under
    other modes.
    """

    def run() -> Tensor:
        tensor = make()
        if tensor.is_cuda:  # Another stream may read it next.
            torch.cuda.current_stream(tensor.device).synchronize()
        return tensor

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(run).result()


def _narrow(values: Tensor) -> Tensor:
    """Cast float64 to float32; leave integers as they are."""
    return values.float() if values.is_floating_point() else values


def continued_rows(table: Tensor, fresh: Tensor) -> Tensor:
    """Return a fresh table whose first rows are those of another: (n, C), (m, C) -> (m, C).

    For m below n, the last n - m rows are dropped.
    """
    count = min(len(table), len(fresh))
    return torch.cat((table[:count].to(fresh), fresh[count:]))


def interpolated_rows(table: Tensor, size: int) -> Tensor:
    """Stretch a table to ``size`` rows by linear interpolation: (n, C) -> (size, C).

    Row s is the value at s (n - 1) / (size - 1), so that the first and last rows stay.
    """
    if len(table) == 1 or size == 1:
        return table[:1].expand(size, -1).clone()
    at = torch.linspace(0, len(table) - 1, size, dtype=torch.float64, device=table.device)
    lower = at.long().clamp(max=len(table) - 2)
    share = (at - lower).unsqueeze(-1).to(table.dtype)
    return torch.lerp(table[lower], table[lower + 1], share)


def check_within_table(label: str, positions: Tensor, size: int) -> None:
    """Check that positions are inside a learned table.

    Raises:
        ValueError: for a position of ``size`` or more, or below 0.
    """
    end = end_of(label, positions, size)
    if end > size:
        raise ValueError(
            f"`positions` must be below max_positions={size} of the learned table, but reach "
            f"{end - 1}; build it with a larger `max_positions` (in fairseq: train with a larger "
            "`max_target_positions`) or use an encoding that extrapolates."
        )
