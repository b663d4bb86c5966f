"""Work that is shared by the cores of a machine."""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import TypeVar

from fairseq_plugins.common.cpu import usable_cores

T = TypeVar("T")
R = TypeVar("R")


def spread(work: Callable[[T], R], over: Sequence[T], processes: int | None = None) -> list[R]:
    """The results of a function of a module, in the order of what it is called with.

    Args:
        work: called in forks, which have what is imported already: importing takes a new process
            longer than its work.
        over: its arguments.
        processes: None for one for each core.
    """
    count = min(len(over), usable_cores() if processes is None else processes)
    if count < 2:
        return [work(one) for one in over]
    with multiprocessing.get_context("fork").Pool(count, _on_one_thread) as pool:
        return pool.map(work, over, chunksize=1)


def _on_one_thread() -> None:
    """Use one thread of PyTorch: a fork has no others and would wait for them for ever."""
    import torch

    torch.set_num_threads(1)
