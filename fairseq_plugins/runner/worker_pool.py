"""Threads that work on runs side by side, and each run's share of the machine."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

import torch

from fairseq_plugins.common.cpu import usable_cores
from fairseq_plugins.runner.interruption import Interruption

_WAKING_SECONDS = 1.0
Environment = dict[str, str]  # variables added to those of this process
Item = TypeVar("Item")
Worker = TypeVar("Worker")
Outcome = TypeVar("Outcome")


def usable_threads() -> int:
    """Return the threads of all runs together: OMP_NUM_THREADS, or the number of cores."""
    words = os.environ.get("OMP_NUM_THREADS", "").split(",")  # OpenMP's syntax: a number per level
    return int(words[0]) if words[0].isdecimal() and int(words[0]) else usable_cores()


def share_of_threads(jobs: int) -> int:
    """Return the threads of one of several runs on a CPU."""
    return max(1, usable_threads() // jobs)


def gpu_mismatch(expected: int, available: int) -> str:
    """Return the message for a node with another number of GPUs than expected."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = "PyTorch has no CUDA" if not torch.version.cuda else f"CUDA_VISIBLE_DEVICES={listed}"
    return (
        f"node {socket.gethostname()} must have {expected} GPUs, but PyTorch finds {available} "
        f"there ({why})."
    )


def environments(jobs: int, gpus: int) -> list[Environment]:
    """Return the environment variables of each of `jobs` runs at once.

    Each gets its share of the CPU's threads, and `gpus` of the GPUs that this process may use. More
    runs of one GPU than there are GPUs share them in turns. A single run inherits everything.
    """
    if jobs == 1:
        return [{}]
    threads = {"OMP_NUM_THREADS": str(share_of_threads(jobs))}
    if not gpus:
        return [threads] * jobs
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = torch.cuda.device_count() or jobs * gpus
    names = visible.split(",") if visible else [str(number) for number in range(found)]
    groups = [",".join(names[start : start + gpus]) for start in range(0, len(names), gpus)]
    return [threads | {"CUDA_VISIBLE_DEVICES": groups[job % len(groups)]} for job in range(jobs)]


def side_by_side(
    run: Callable[[Item, Worker], Outcome],
    items: Sequence[Item],
    workers: Sequence[Worker],
    interruption: Interruption,
) -> Iterator[tuple[Item, Outcome]]:
    """Call `run` for all items in order, one thread per worker; yield outcomes as they end.

    A worker has one item at a time; all threads live until the last item ends. If `run` or the
    caller raises, the others are asked to stop and waited for.
    """
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    failures: list[BaseException] = []

    def with_worker(item: Item) -> Outcome:
        interruption.check()
        worker = free.get()
        try:
            return run(item, worker)
        except BaseException as failure:
            failures.append(failure)
            interruption.request()  # before this thread takes the next item
            raise
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers), "run") as pool:
        futures = {pool.submit(with_worker, item): item for item in items}
        try:
            running = set(futures)
            while running:
                # Python handles signals when this thread wakes, even if another received them.
                ended, running = wait(running, _WAKING_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    if failures:  # the first one, not the stops that it caused
                        raise failures[0]
                    yield futures[future], future.result()
        except BaseException:
            interruption.request()
            raise
