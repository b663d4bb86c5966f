"""What Slurm's queue says of this repository's jobs, and putting a job back into it."""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FIELDS = "%A|%j|%T|%r|%e|%N|%Z"
_SECONDS_OF_TIMES = {"SLURM_TIME_FORMAT": "%s"}  # since 1970, as `time.time` has them
# All that a job is in before it runs, or again.
_WAITS = frozenset(
    {"PENDING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
GOES_ON = "goes on from the last checkpoint."  # the same command, or submitting again
_SECONDS = 30.0  # that a busy slurmctld may take for an answer


@dataclass(frozen=True)
class Queued:
    """A job that waits or runs.

    Attributes:
        number: Slurm's.
        name: of the run, as `chain.Job` has it.
        state: in Slurm's words, as PENDING. COMPLETING, its processes and its nodes' epilog end
            and it begins once more.
        reason: why it waits, in Slurm's words.
        nodes: empty where it is PENDING.
    """

    number: int
    name: str
    state: str
    reason: str = ""
    nodes: str = ""

    @property
    def waits(self) -> bool:
        """Whether it runs later and not now."""
        return self.state in _WAITS


class NoSlurm(Exception):
    """Slurm's commands are not here, or do not answer."""


def _ask(words: Sequence[str]) -> str:
    """What a command of Slurm's prints.

    Raises:
        NoSlurm: it is not here, or it failed, with what it said.
    """
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env=os.environ | _SECONDS_OF_TIMES,
        )
    except FileNotFoundError:
        raise NoSlurm(f"{words[0]} was not found") from None
    except subprocess.TimeoutExpired:
        raise NoSlurm(f"{words[0]} does not answer") from None
    if done.returncode:
        said = " ".join(done.stderr.split())  # in one line
        raise NoSlurm(f"{words[0]}: {said or f'status {done.returncode}'}")
    return done.stdout


def read_queue(root: Path) -> dict[str, Queued]:
    """This user's jobs that were submitted in this repository and have not ended, by name.

    Raises:
        NoSlurm: as `_ask` does.
    """
    found = {}
    for line in _ask(["squeue", "--me", "--noheader", "--format", _FIELDS]).splitlines():
        number, name, state, reason, end, nodes, folder = line.split("|", 6)
        if Path(folder).resolve() == root.resolve() and not _has_ended(state, end):
            found[name] = Queued(int(number), name, state, reason, nodes)
    return found


def _has_ended(state: str, end: str) -> bool:
    """Whether a job that Slurm cleans up after will not run again.

    The end of one that goes back into the queue lies ahead, or has no limit: NONE.
    """
    return state == "COMPLETING" and end.isdecimal() and int(end) <= time.time()


def go_on_later(
    job: int | None, *, has_gained: bool, step: str = "update", how: str = GOES_ON
) -> int:
    """Put this process's job back into the queue, its time being over; returns the exit status.

    A job that came no further would come back for ever. step: what it would have gained. how: what
    a user does where it cannot go back.
    """
    if job is None:
        print(f"\nStopped by SIGUSR1. The same command {how}")
        return 138
    if not has_gained:
        print(f"\nFAILED: the time limit of job {job} ends before its first {step}.")
        return 1
    print(f"\nThe time of job {job} is nearly over: it goes back into the queue.", flush=True)
    try:
        _ask(["scontrol", "requeue", str(job)])
    except NoSlurm as error:
        print(f"It could not ({error}). Submitting again {how}")
        return 1
    return 0
