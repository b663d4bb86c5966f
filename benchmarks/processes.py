"""Memory of processes, seen from outside, as Linux tells it in /proc.

Read from there: psutil reads the same files, and is no requirement of what measures.
"""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_PROPORTIONAL = "Pss:"
_EVERY = 0.5  # seconds between two looks, each of which takes some milliseconds a process


def tree(pid: int) -> list[int]:
    """A process and all that it started, of those that still run."""
    found = [pid]
    for parent in found:
        # Each thread has the processes that it started.
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:  # it has just ended
                continue
    return found


def resident(pid: int) -> int:
    """Bytes of memory of a process; what it shares with others counts in each."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def proportional(pid: int) -> int:
    """Bytes of memory of a process; what n processes share counts a n-th in each (PSS)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith(_PROPORTIONAL)]
    return 1024 * int(sizes[0]) if sizes else 0


class PeakOfChildren:
    """The most memory that this process's children, and theirs, hold together in a block.

    Attributes:
        bytes: the sum of their proportional set sizes at most, at the moments of looking.
        looks: how many there were.
    """

    def __init__(self) -> None:
        self.bytes = self.looks = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_EVERY):
            _, *children = tree(os.getpid())
            self.bytes = max(self.bytes, sum(map(proportional, children)))
            self.looks += 1
