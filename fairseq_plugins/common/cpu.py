"""Process settings that speed up training on a CPU, and numbers of cores."""

import ctypes
import os
import sys
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds per period
# Constants of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_ENVIRONMENT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")
# The largest values: glibc's limit of 32 MiB, and the largest int.
_MMAP_THRESHOLD = 32 * 1024**2
_TRIM_THRESHOLD = 2**31 - 1


def is_fairseq_command() -> bool:
    """Return whether this process is one of fairseq's own commands."""
    program = Path(sys.argv[0])
    if program.name == "fairseq-pe":
        return False  # this package's own
    return program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli"


def cores() -> int:
    """Count the cores in this process's affinity mask."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def usable_cores() -> int:
    """Count the cores that this process may use, within a container's quota."""
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores(), int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit, or "max"
        return cores()


def prepare_cpu() -> None:
    """Flush denormals and keep freed memory, in this process and its later threads.

    Only programs call this, no import does: it changes numbers below 1.2e-38. Softmax weights near
    e^-90, as of ALiBi's distant keys, are denormal, and some processors take a hundred times as
    long for them.
    """
    import numpy as np  # slow to import; --help stays fast
    import torch

    for kind in (np.float32, np.float64):
        np.finfo(kind)  # NumPy tests denormals on the first call, and would warn later
    torch.set_flush_denormal(True)  # no effect where the processor does not support it
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory up to 32 MiB per block instead of returning it.

    Each step allocates tensors of the same sizes, and fresh pages are slow, especially on virtual
    machines. Does nothing without glibc, or if the environment configures malloc.
    """
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or tuned or any(name in os.environ for name in _ENVIRONMENT):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
