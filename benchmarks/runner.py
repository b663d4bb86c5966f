"""The runner of all benchmarks: their form, and how their cases are timed.

A benchmark is data (``Benchmark``) and a generator of cases. The generator checks what it will time
against formulas in float64, which raises ``Mismatch`` before anything is timed, and yields a
``Case`` for each size; its calls are timed in turns.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.context import BOTH, Context, Settings
from benchmarks.limits import Work, count_work, join_peaks, measure_peaks, rates
from benchmarks.record import Found, Result, is_current, record, short
from benchmarks.timing import Call, Pace, interleave, peak_bytes

_PACE, _QUICK = Pace(8.0, 5, 200), Pace(0.0, 2, 2)
_GPU_PACE = Pace(3.0, 10, 50)  # times on a GPU hardly spread, and its minutes are dear
# Sizes beyond the caches that reach a device's peaks.
_PEAKS = {
    "cpu": {"gemm_size": 1024, "copy_bytes": 2**28, "repetitions": 9},
    "gpu": {"gemm_size": 8192, "copy_bytes": 2**31, "repetitions": 20},
}
_QUICK_PEAKS = {"gemm_size": 64, "copy_bytes": 2**16, "repetitions": 3}


@dataclass(frozen=True)
class Case:
    """Calls that take turns, and what is computed from their times and memory.

    Attributes:
        runs: timed calls, by the key of their time.
        ratios: the keys of two times, by the key of their ratio.
        starts: functions that prepare a call, untimed, and return it, by the key of its time.
        steps: number by which times are divided.
        work: work of calls that cannot be counted, by the key of their time.
        memory: calls whose peak memory is measured, by its key.
        kept: bytes of it that are not counted.
        memory_ratios: a key of peak memory, and another one or a number of bytes, by the key of
            their ratio.
    """

    runs: Mapping[str, Call] = field(default_factory=dict)
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    starts: Mapping[str, Callable[[], Call]] = field(default_factory=dict)
    steps: int = 1
    work: Mapping[str, Work] = field(default_factory=dict)
    memory: Mapping[str, Call] = field(default_factory=dict)
    kept: int = 0
    memory_ratios: Mapping[str, tuple[str, str | int]] = field(default_factory=dict)


Cases = Callable[[Settings, Context, Found], Iterator[Case]]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
        cases: yields the cases; what it adds to the results itself is kept.
        sizes: settings on a CPU; with ``contenders``, the number of ``lengths`` of each.
        pace: number of turns on a CPU; None if nothing takes turns.
        gpu: settings that differ on a GPU.
        quick: settings that differ in a quick run, on a CPU whatever the devices are.
        minutes: an estimate on a data-centre GPU.
        devices: those on which it runs.
        more: makes further settings; given instead of peaks where no products are timed.
        shares: contenders whose share of the peak product becomes a ratio, as
            ``linear/peak_gemm@512``.
    """

    summary: str
    cases: Cases
    sizes: Settings
    pace: Pace | None = _PACE
    gpu: Settings = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    minutes: float = 5.0
    devices: Sequence[str] = BOTH
    more: Callable[[], Settings] | None = None
    shares: Sequence[str] = ()

    def settings(self, device: str, quick: bool) -> Settings:
        found = self.sizes | (self.gpu if device == "gpu" else {}) | (self.quick if quick else {})
        if "contenders" in found:
            lengths, counts = found.pop("lengths"), found["contenders"]
            found["contenders"] = {name: lengths[:count] for name, count in counts.items()}
        if self.pace:
            pace = _GPU_PACE if device == "gpu" else self.pace
            found["pace"] = vars(_QUICK if quick else pace)
        if self.more:
            return found | self.more()
        return found | {"peaks": _QUICK_PEAKS if quick else _PEAKS[device]}

    def measure(self, settings: Settings, context: Context) -> Found:
        """Measure the cases, between two measurements of the peaks."""
        found, sizes = Found(), settings.get("peaks")
        peaks = [measure_peaks(sizes, context)] if sizes else []
        for case in self.cases(settings, context, found):
            _add_times(case, found, settings, context)
            _add_memory(case, found, context)
        if sizes and not found.peaks:
            found.peaks = join_peaks([*peaks, measure_peaks(sizes, context)])
            self._add_rates(found)
        return found

    def _add_rates(self, found: Found) -> None:
        for key, work in found.work.items():
            found.rates[key] = rates(work, found.medians[key], found.peaks)
            name, _, size = key.partition("@")
            share = found.rates[key]["of_peak_gemm"]
            if name in self.shares and share is not None:
                found.ratios[f"{name}/peak_gemm@{size}"] = share


def _add_times(case: Case, found: Found, settings: Settings, context: Context) -> None:
    """Time the calls in turns, and count their work after that."""
    if not (case.runs or case.starts):
        return
    seconds = interleave(case.runs, Pace(**settings["pace"]), context.device, starts=case.starts)
    for key, times in seconds.items():
        found.add(key, [time / case.steps for time in times])
    context.say("  " + ", ".join(f"{key} {1e3 * found.medians[key]:.1f} ms" for key in seconds))
    for key, (one, other) in case.ratios.items():
        found.add_ratio(key, seconds[one], seconds[other])
        context.say(f"  {key}: {found.ratios[key]:.2f}")
    if "peaks" in settings:
        for key in seconds:
            found.work[key] = case.work.get(key) or count_work(case.runs[key])


def _add_memory(case: Case, found: Found, context: Context) -> None:
    """Measure peak memory, after a call in which kernels are compiled."""
    for key, run in case.memory.items():
        run()
        found.values[key] = peak_bytes(run, context.device) - case.kept
    for key, (one, other) in case.memory_ratios.items():
        base = other if isinstance(other, int) else found.values[other]
        found.ratios[key] = short(found.values[one] / max(base, 1))
        context.say(f"  {key}: {found.ratios[key]:.3f}")
    if context.device.type == "cuda":
        torch.cuda.empty_cache()


def measure_once(
    path: Path, fields: Result, work: Callable[[], Result], context: Context
) -> Result | None:
    """Measure as `record` does, unless there is a current JSON; return what is new."""
    if not context.force and is_current(path, fields, context.gpus):
        return None
    # Each measurement begins with a collection: the objects of imported modules are spared.
    gc.freeze()
    try:
        return record(path, fields, work, context.command, context.gpus)
    finally:
        gc.unfreeze()
