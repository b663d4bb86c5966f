"""Slurm: the records of submitted jobs, its queue, and requeueing a job.

A record is a line of JSON in jobs.jsonl, the oldest first.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import root_folder

SUBMISSIONS = "jobs.jsonl"
RENDER = "render"  # suffix of the name of a job that renders a page
RunKey = tuple[str, str, str]  # table, folder of the scale or study, name of the run
Record = Mapping[str, Any]  # of a submitted job
_FIELDS = "%A|%j|%T|%r|%e|%Z"
_TIMES_IN_SECONDS = {"SLURM_TIME_FORMAT": "%s"}  # since 1970, as `time.time`
# States of a job that will run, or run again.
_WAITS = frozenset(
    {"PENDING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
RESUMES = "goes on from the last checkpoint."  # after "The same command"
_TIMEOUT_SECONDS = 30.0  # for a busy slurmctld


@dataclass(frozen=True)
class Queued:
    """A job that waits or runs, with Slurm's state and reason for waiting.

    COMPLETING is a job that ends and will be requeued.
    """

    number: int
    name: str
    state: str
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Return whether it is not running yet."""
        return self.state in _WAITS


def note_submission(root: Path, folder: Path, record: Mapping[str, Any]) -> None:
    """Append a job and the time, in seconds since 1970, to the file in a folder."""
    with (root / folder / SUBMISSIONS).open("a") as file:
        # A line that was cut off has no end; the next record must not become a part of it.
        file.write("\n" + json.dumps({**record, "submitted": time.time()}) + "\n")


def read_submissions(root: Path) -> list[dict[str, Any]]:
    """Read the jobs of all tables, the latest of each name, with the `folder` of its log."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((root / root_folder("checkpoints")).glob(f"*/*/{SUBMISSIONS}")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):  # empty, or the writing process was killed
                continue
            if _is_sound(record):
                found[record["name"]] = {**record, "folder": path.parent}
    return list(found.values())


def _is_sound(record: Any) -> bool:
    """Return whether a record has the keys of a job, with the right types."""
    match record:
        case {"name": str(), "number": int(number), "runs": [*runs], "after": [*after]}:
            since = record.get("submitted", 0.0)
            return (
                not isinstance(number, bool)
                and all(isinstance(name, str) for name in after)
                and all(isinstance(run, list) and [*map(type, run)] == [str] * 3 for run in runs)
                and type(since) in (int, float)
            )
    return False


class NoSlurm(Exception):
    """Slurm's commands are missing or do not answer."""


def _ask(words: Sequence[str]) -> str:
    """Run a Slurm command and return its output.

    Raises NoSlurm: it is missing, takes too long or failed, with its message.
    """
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            env=os.environ | _TIMES_IN_SECONDS,
        )
    except FileNotFoundError:
        raise NoSlurm(f"{words[0]} was not found") from None
    except subprocess.TimeoutExpired:
        raise NoSlurm(f"{words[0]} does not answer") from None
    if done.returncode:
        message = " ".join(done.stderr.split())
        raise NoSlurm(f"{words[0]}: {message or f'status {done.returncode}'}")
    return done.stdout


def read_queue(root: Path) -> dict[str, Queued]:
    """Read this user's waiting and running jobs of this repository, by name.

    Raises NoSlurm: as `_ask` does.
    """
    jobs = {}
    for line in _ask(["squeue", "--me", "--noheader", "--format", _FIELDS]).splitlines():
        number, name, state, reason, end, folder = line.split("|", 5)
        if Path(folder).resolve() == root.resolve() and not _has_ended(state, end):
            jobs[name] = Queued(int(number), name, state, reason)
    return jobs


def _has_ended(state: str, end: str) -> bool:
    """Return whether a COMPLETING job will not run again.

    A job that is requeued has its end in the future, or no time limit: NONE.
    """
    return state == "COMPLETING" and end.isdecimal() and int(end) <= time.time()


def requeue(job: int | None, *, has_gained: bool, step: str = "update", how: str = RESUMES) -> int:
    """Requeue the Slurm job of this process at its time limit; return the exit status.

    job: its number, None outside Slurm. has_gained: whether it made progress; a job without
    progress would be requeued for ever. step: unit of progress, for the message. how: text on
    resuming by hand, after "The same command".
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
