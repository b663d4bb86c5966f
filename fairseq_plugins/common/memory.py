"""Memory that is free here, and that processes use, from Linux's /proc and /sys."""

import os
import threading
from pathlib import Path
from typing import Self

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container, which sees its own group there
_SAMPLING_SECONDS = 0.5


def available() -> int | None:
    """Return the bytes that processes can take without swapping; None if unknown.

    In a container, at most what its limit leaves.
    """
    sizes = (_read_field(_MEMINFO, "MemAvailable:"), _free_in_group())
    return min((size for size in sizes if size is not None), default=None)


def free_swap() -> int:
    """Return the bytes of swap that are free; 0 if unknown."""
    return _read_field(_MEMINFO, "SwapFree:") or 0


def _read_field(path: Path, name: str) -> int | None:
    """Return the bytes of a field in kB; None if the file or the field is missing."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), None)


def _free_in_group() -> int | None:
    try:
        limit, used = ((_GROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no group of its own, or "max": no limit
        return None


def tree(pid: int) -> list[int]:
    """List a process and its running descendants."""
    found = [pid]
    for parent in found:
        # Children are listed by the thread that started them.
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:  # the process has just ended
                continue
    return found


def proportional(pid: int) -> int:
    """Return a process's proportional set size (PSS) in bytes, which takes milliseconds."""
    return _read_field(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") or 0


class PeakOfChildren:
    """A context that samples the memory of the descendants that this process starts after it.

    A descendant counts from its second sample on: until it has executed its program, it shares all
    memory of the process that started it.
    """

    def __init__(self) -> None:
        self.bytes = self.samples = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")
        self._before = frozenset(tree(os.getpid()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        seen: set[int] = set()
        while True:
            started = {*tree(os.getpid())} - self._before
            self.bytes = max(self.bytes, sum(map(proportional, started & seen)))
            seen = started
            self.samples += 1
            if self._is_over.wait(_SAMPLING_SECONDS):
                return
