"""Contenders timed by turns, so that whatever slows the machine slows them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # PyTorch takes seconds, which a command's --help must not
    import torch
Contender = Callable[[], object]


@dataclass(frozen=True)
class Pace:
    """How many rounds are timed: as many as fit into ``seconds``, but ``least`` to ``most``."""

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
        """Time of ``name`` over that of ``other``, round by round: drift cancels in each."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=True)
        return [a / b for a, b in pairs]


def quartiles(values: list[float]) -> tuple[float, float]:
    """The first and the third."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def synchronize(device: "torch.device") -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def interleave(
    contenders: Mapping[str, Contender],
    pace: Pace,
    device: "torch.device",
    *,
    prepare: Mapping[str, Callable[[], None]] | None = None,
) -> Samples:
    """Time all contenders in every round, in turns from the first to the last and back.

    Args:
        contenders: by name; what they return is dropped.
        pace: how long.
        device: waited for before and after each.
        prepare: what precedes a contender, untimed.
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
