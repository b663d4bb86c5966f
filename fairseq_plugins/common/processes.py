"""Memory of processes, from Linux's /proc."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_PROPORTIONAL = "Pss:"


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


def resident(pid: int) -> int:
    """Return a process's resident bytes, quickly; shared pages count in each process."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def proportional(pid: int) -> int:
    """Return a process's proportional set size (PSS) in bytes, which takes milliseconds."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith(_PROPORTIONAL)]
    return 1024 * int(sizes[0]) if sizes else 0


class PeakOfChildren:
    """A context that samples the memory of the descendants that this process starts after it.

    A descendant counts from its second sample on: until it has executed its program, it shares all
    memory of the process that started it.

    Args:
        every: seconds between samples.
        size: the measure of a process's memory.

    Attributes:
        bytes: the largest sum of sizes.
        looks: number of samples.
    """

    def __init__(self, every: float = 0.5, size: Callable[[int], int] = proportional) -> None:
        self._every, self._size = every, size
        self.bytes = self.looks = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")
        self._before = frozenset(tree(os.getpid()))

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
        seen: set[int] = set()
        while True:
            started = {*tree(os.getpid())} - self._before
            self.bytes = max(self.bytes, sum(map(self._size, started & seen)))
            seen = started
            self.looks += 1
            if self._is_over.wait(self._every):
                return
