"""Work in parallel processes."""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import TypeVar

from fairseq_plugins.common.cpu import usable_cores

T = TypeVar("T")
R = TypeVar("R")


def map_in_processes(
    work: Callable[[T], R], over: Sequence[T], processes: int | None = None
) -> list[R]:
    """Map a module-level function over items in forked processes, keeping order.

    processes: their number; None for one per core.
    """
    count = min(len(over), usable_cores() if processes is None else processes)
    if count < 2:
        return [work(one) for one in over]
    with multiprocessing.get_context("fork").Pool(count, _on_one_thread) as pool:
        return pool.map(work, over, chunksize=1)


def _on_one_thread() -> None:
    """Limit PyTorch to one thread: a fork has no others and would wait for them for ever."""
    import torch

    torch.set_num_threads(1)
