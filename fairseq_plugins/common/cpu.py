"""Two settings of the process without which training on a CPU can take far longer."""

import ctypes
import os
import sys
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of every so many
# Numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_ENVIRONMENT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")
# Above 32 MiB glibc refuses the one, above 2^31 - 1 the other is no int.
_MMAP_THRESHOLD = 32 * 1024**2
_TRIM_THRESHOLD = 2**31 - 1


def is_fairseq_command() -> bool:
    """Return whether this process is a command of fairseq, not a program that imports modules."""
    program = Path(sys.argv[0])
    if program.name == "fairseq-pe":
        return False  # this package's own
    return program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli"


def cores() -> int:
    """The cores that this process may run on."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def usable_cores() -> int:
    """Count the cores that this process may use: a container may have fewer than it sees."""
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores(), int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit, or "max"
        return cores()


def prepare_cpu() -> None:
    """Flush denormals and keep freed memory, in this process and the threads it starts later.

    Programs call this and imports never do: numbers under 1.2e-38 change, which some rely on.
    """
    flush_denormals()
    keep_freed_memory()


def flush_denormals() -> None:
    """Numbers too small for a full mantissa become 0, where the processor can do that.

    A key that a softmax leaves a weight of e^-90, as ALiBi does to far ones, has such a number
    for its weight, and arithmetic with it takes some processors a hundred times as long.
    """
    import numpy as np  # here, since who asks what program this is need not wait for it
    import torch

    for kind in (np.float32, np.float64):
        np.finfo(kind)  # numpy tries such numbers out when first asked, and would warn
    torch.set_flush_denormal(True)


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for the next step in place of giving it back to the system.

    Every step makes and frees tensors of the same sizes, and memory fresh from the system is slow
    to touch, on virtual machines above all. Tensors above 32 MiB are given back as before. Does
    nothing without glibc, or where the environment has settings of its own.
    """
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or tuned or any(name in os.environ for name in _ENVIRONMENT):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
