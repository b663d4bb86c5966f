"""Runs side by side: how many at once, what each gets of the machine, and waiting for them."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

import torch

from fairseq_plugins.common.cpu import usable_cores
from fairseq_plugins.experiments.devices import GPUS_PER_NODE
from fairseq_plugins.runner.interruption import Interruption

_WAKING_SECONDS = 1.0
Environment = dict[str, str]  # variables beside this process's own
Work = TypeVar("Work")
Place = TypeVar("Place")
Outcome = TypeVar("Outcome")


def usable_threads() -> int:
    """The threads of all runs together: OMP_NUM_THREADS, or the cores that there are."""
    words = os.environ.get("OMP_NUM_THREADS", "").split(",")  # OpenMP's syntax: a number per level
    return int(words[0]) if words[0].isdecimal() and int(words[0]) else usable_cores()


def share_of_threads(jobs: int) -> int:
    """The threads of one of several runs on a CPU."""
    return max(1, usable_threads() // jobs)


def check_jobs(jobs: int, gpus: int, *, is_slurm: bool) -> None:
    """Refuse a number of runs at once that there cannot be.

    Args:
        jobs: runs at once.
        gpus: of each.
        is_slurm: whether they share a job, which has one node.

    Raises:
        ValueError: naming the option and the value.
    """
    if jobs < 1:
        raise ValueError(f"`--jobs` must be at least 1, but is {jobs} instead.")
    if is_slurm and jobs > 1 and jobs * gpus > GPUS_PER_NODE:
        raise ValueError(
            f"`--jobs` times `--gpus` must be at most the {GPUS_PER_NODE} GPUs of a node with "
            f"--slurm, but is {jobs} x {gpus} = {jobs * gpus} instead."
        )


def check_gpus(jobs: int, gpus: int, available: int) -> None:
    """Refuse more GPUs than there are.

    Args:
        jobs: runs at once.
        gpus: of each.
        available: how many PyTorch finds.

    Raises:
        ValueError: naming the options and the values.
    """
    if jobs * gpus <= available:
        return
    if jobs == 1:
        raise ValueError(
            f"`--gpus` must be at most the {available} that PyTorch finds here, "
            f"but is {gpus} instead; scales toy and mini train on a CPU (--gpus 0)."
        )
    raise ValueError(
        f"`--jobs` times `--gpus` must be at most the {available} GPUs that PyTorch finds here, "
        f"but is {jobs} x {gpus} = {jobs * gpus} instead."
    )


def check_node(gpus: int, available: int, *, only_measures: bool) -> None:
    """Refuse to begin a job on a node without the GPUs that it was submitted for.

    Args:
        gpus: of the run, on all nodes.
        available: how many PyTorch finds on this one.
        only_measures: whether one is enough, if Slurm gave any.

    Raises:
        ValueError: naming the node.
    """
    asked = min(gpus, GPUS_PER_NODE)
    if only_measures:
        asked = min(1, gpus, int(os.environ.get("SLURM_GPUS_ON_NODE", 0)))
    if available < asked or (available > asked > 1):
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "PyTorch has no CUDA" if not torch.version.cuda else f"CUDA_VISIBLE_DEVICES={listed}"
        raise ValueError(
            f"node {socket.gethostname()} was to have {asked} GPUs, but PyTorch finds {available} "
            f"there ({why})."
        )


def environments(jobs: int, gpus: int) -> list[Environment]:
    """What the commands of each of `jobs` runs at once see.

    On a CPU their share of the threads, else `gpus` GPUs of their own, among those that this
    process may use. One run alone has what this process has.
    """
    if jobs == 1:
        return [{}]
    if not gpus:
        return [{"OMP_NUM_THREADS": str(share_of_threads(jobs))} for _ in range(jobs)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(jobs * gpus)]
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(names[start : start + gpus])}
        for start in range(0, jobs * gpus, gpus)
    ]


def side_by_side(
    run: Callable[[Work, Place], Outcome],
    works: Sequence[Work],
    places: Sequence[Place],
    interruption: Interruption,
) -> Iterator[tuple[Work, Outcome]]:
    """Do all works in their order, as many at once as there are places; yields as they end.

    Each has a place to itself while it runs, in a thread that lives until all have ended. Where one
    raises, or the caller does, the others are requested to stop and are waited for.
    """
    free: SimpleQueue[Place] = SimpleQueue()
    for place in places:
        free.put(place)

    failures: list[BaseException] = []

    def in_a_place(work: Work) -> Outcome:
        interruption.check()
        place = free.get()
        try:
            return run(work, place)
        except BaseException as failure:
            failures.append(failure)
            interruption.request()  # before this thread takes the next
            raise
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places), "run") as pool:
        futures = {pool.submit(in_a_place, work): work for work in works}
        try:
            running = set(futures)
            while running:
                # Python handles a signal when this thread wakes, whichever the system gives it to.
                ended, running = wait(running, _WAKING_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    if failures:  # the first, and not what it made the others raise
                        raise failures[0]
                    yield futures[future], future.result()
        except BaseException:
            interruption.request()
            raise
