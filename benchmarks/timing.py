"""Timing of contenders in turns, so that a slow machine affects all alike."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # slow to import; --help stays fast
    import torch
Contender = Callable[[], object]


@dataclass(frozen=True)
class Pace:
    """Number of rounds: as many as fit into ``seconds``, from ``least`` to ``most``."""

    seconds: float
    least: int
    most: int

    def rounds(self, one_round: float) -> int:
        return max(self.least, min(self.most, int(self.seconds / max(one_round, 1e-9))))


@dataclass(frozen=True)
class Samples:
    """Seconds of each contender, one per round."""

    seconds: dict[str, list[float]]

    @property
    def rounds(self) -> int:
        return len(next(iter(self.seconds.values())))

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratios(self, name: str, other: str) -> list[float]:
        """Return the ratio of two contenders' times in each round, in which drift cancels."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=True)
        return [a / b for a, b in pairs]


def quartiles(values: list[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def synchronize(device: "torch.device") -> None:
    """Wait for the device."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


@contextmanager
def quick_collections() -> Iterator[None]:
    """Spare the objects that there are, mostly of imported modules, the garbage collector.

    Each measurement begins with a collection, which would else take longer than a small one.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def interleave(
    contenders: Mapping[str, Contender],
    pace: Pace,
    device: "torch.device",
    *,
    prepare: Mapping[str, Callable[[], None]] | None = None,
) -> Samples:
    """Time all contenders in every round, forwards and backwards in turn.

    Args:
        contenders: functions by name.
        pace: number of rounds.
        device: synchronised before and after each call.
        prepare: untimed setup by name.
    """
    prepare = prepare or {}

    def once(name: str) -> float:
        if name in prepare:
            prepare[name]()
        synchronize(device)
        began = time.perf_counter()
        contenders[name]()
        synchronize(device)
        return time.perf_counter() - began

    for _ in range(3 if device.type == "cuda" else 1):
        for name in contenders:
            once(name)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order, done, rounds = list(contenders), 0, 1
    gc.collect()
    gc.disable()
    try:
        while done < rounds:
            for name in order:
                seconds[name].append(once(name))
            order.reverse()
            done += 1
            if done == 1:
                rounds = pace.rounds(sum(times[0] for times in seconds.values()))
    finally:
        gc.enable()
    return Samples(seconds)
