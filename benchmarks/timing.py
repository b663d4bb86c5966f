"""Timing of contenders in turns, so that a slow machine affects all alike, and peak memory."""

import gc
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Call = Callable[[], object]


@dataclass(frozen=True)
class Pace:
    """Number of rounds: as many as fit into ``seconds``, from ``least`` to ``most``."""

    seconds: float
    least: int
    most: int

    def rounds(self, one_round: float) -> int:
        return max(self.least, min(self.most, int(self.seconds / max(one_round, 1e-9))))


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleave(
    contenders: Mapping[str, Call],
    pace: Pace,
    device: torch.device,
    *,
    starts: Mapping[str, Callable[[], Call]] | None = None,
) -> dict[str, list[float]]:
    """Time all contenders in every round, forwards and backwards in turn.

    starts: functions by name that prepare a contender, untimed, and return it.

    Returns:
        The seconds of each contender, one per round.
    """
    starts = starts or {}
    order = [*contenders, *starts]

    def once(name: str) -> float:
        run = starts[name]() if name in starts else contenders[name]
        synchronize(device)
        began = time.perf_counter()
        run()
        synchronize(device)
        return time.perf_counter() - began

    for _ in range(3 if device.type == "cuda" else 1):
        for name in order:
            once(name)
    seconds: dict[str, list[float]] = {name: [] for name in order}
    done, rounds = 0, 1
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
    return seconds


def peak_bytes(run: Call, device: torch.device | None = None) -> int:
    """Measure the peak bytes of ``run`` beyond those allocated before.

    On a CPU the profiler records every allocation, also inside operators; on a GPU torch counts.
    """
    if device is not None and device.type == "cuda":
        synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    gc.collect()  # else older garbage may be freed, and subtracted, within the run
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        kept = run()
    del kept
    assert records.profiler is not None
    results = records.profiler.kineto_results
    assert results is not None
    events = [e for e in results.events() if e.name() == "[memory]"]
    events = [e for e in events if e.device_type() == DeviceType.CPU]
    assert events, "the profiler recorded no allocation"
    sizes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(0, *itertools.accumulate(sizes))
