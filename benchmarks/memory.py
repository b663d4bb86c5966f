"""Peak memory of a computation, from PyTorch's allocators."""

import gc
from collections.abc import Callable

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], object], device: torch.device | None = None) -> int:
    """Measure the peak bytes of ``run`` beyond those allocated before.

    On a CPU the profiler records every allocation, also inside operators; on a GPU torch counts.
    """
    if device is not None and device.type == "cuda":
        return _peak_on_gpu(run, device)
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
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _peak_on_gpu(run: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    kept = run()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del kept
    return peak - before
