"""Status of every run, from results, journals, logs, locks of this machine and Slurm's queue.

Nothing is started, locked or changed, and neither PyTorch nor fairseq is imported.
"""

import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import from_root, root_folder
from fairseq_plugins.records import logs
from fairseq_plugins.records.recipe_files import fault_of
from fairseq_plugins.runner.journal import JOURNAL, Journal, written
from fairseq_plugins.runner.slurm_queue import RENDER, Queued, Record, RunKey

DONE, RUNNING, WAITING = "done", "running", "waiting"
STOPPED, FAILED, CANCELLED = "stopped", "failed", "cancelled"
UNKNOWN = "unknown"
STATES = (RUNNING, WAITING, UNKNOWN, FAILED, CANCELLED, STOPPED, DONE)
_TAIL = 1 << 16  # bytes that are read at the end of a log
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True)
class Status:
    """Status of a run, or of a job that makes a page."""

    table: str
    scale: str  # or its study
    name: str  # of the run; `page`, or the name of another job without runs
    # One of `STATES`. STOPPED: interrupted, can be resumed. UNKNOWN: submitted, but Slurm does not
    # answer, or its files cannot be read.
    state: str
    job: int | None = None  # number of its job in the queue
    updates: int | None = None  # of all its trainings so far
    total: int | None = None  # updates of all its trainings at the end
    loss: float | None = None  # base 2, last logged
    seconds_left: float | None = None  # of all its trainings, at their last speed
    reason: str = ""  # why it waits (Slurm's word), was cancelled or failed
    lines: list[str] = field(default_factory=list)  # last ones of a failed run's log
    log: str = ""  # that log, relative to the root if it is below it


class RunStatuses:
    """Results, journals, locks and jobs, from which the statuses of runs are derived.

    submitted: from `read_submissions`, read before the queue. queue: None if Slurm does not answer.
    """

    def __init__(
        self, root: Path, submitted: Sequence[Record], queue: Mapping[str, Queued] | None
    ) -> None:
        self.root, self.submitted, self.queue = root, submitted, queue
        self.results, self.checkpoints = (root / root_folder(k) for k in ("results", "checkpoints"))
        self.held = _held_inodes()
        self.jobs: dict[RunKey, list[Record]] = {}
        for record in submitted:
            for table, scale, name in record["runs"]:
                self.jobs.setdefault((table, scale, name), []).append(record)

    def statuses(self) -> list[Status]:
        """Return the statuses of all runs and pages, by table and scale."""
        results = (path.with_suffix("") for path in self.results.glob("*/*/*-s*.json"))
        folders = (path.parent for path in self.checkpoints.glob(f"*/*/*/{JOURNAL}"))
        paths = (*results, *(one for one in folders if not one.name.endswith(".previous")))
        keys = {*self.jobs, *((p.parts[-3], p.parts[-2], p.parts[-1]) for p in paths)}
        states = [self._of_any_run(key) for key in sorted(keys)]
        states += [self._of_page(record) for record in self.submitted if not record["runs"]]
        return self._with_reasons(sorted(states, key=lambda one: (one.table, one.scale)))

    def _of_any_run(self, key: RunKey) -> Status:
        """Return the status of a run, maybe of another user whose files are not readable."""
        try:
            return self._of_run(key)
        except OSError as error:
            return Status(*key, UNKNOWN, reason=str(error))

    def _of_run(self, key: RunKey) -> Status:
        table, scale, name = key
        status, jobs = Status(*key, STOPPED), self.jobs.get(key, [])
        folder = self.checkpoints / table / scale / name
        queued = self._queued(jobs)
        lock = folder.with_name(f"{folder.name}.lock")
        if lock.exists() and lock.stat().st_ino in self.held:
            number = next((one.number for one in queued if not one.waits), None)
            return replace(status, state=RUNNING, job=number, **_progress(folder))
        names = {one.name for one in queued}
        waiting = [job for job in jobs if job["name"] in names]
        result = self.results / table / scale / f"{name}.json"
        journal = Journal.read(folder)
        # A run that began after its result was written: with --force, or for its checkpoint.
        is_open = journal is not None and journal.is_open_after(result)
        if not is_open and _is_newer(result, waiting):
            if fault := fault_of(result):
                reason = f"{from_root(result, self.root)} is damaged: {fault}"
                return replace(status, state=FAILED, reason=reason)
            # A job for its checkpoint alone, as in a new clone, may have failed before it began.
            log = None if journal or queued else _last_log(jobs)
            if log and written(log) > written(result) and not logs.names_page(log):
                return self._failed(status, log)
            return replace(status, state=DONE)
        status = replace(status, **_progress(folder))
        if journal and is_open and journal.failed and _is_newer(folder / JOURNAL, waiting):
            log = Path(os.path.normpath(folder / journal.log))
            return self._failed(replace(status, reason=journal.failed), log)
        return self._by_jobs(status, jobs)

    def _of_page(self, job: Record) -> Status:
        """Return the status of a job without runs, which makes a page or Table 9."""
        table, scale = job["folder"].parts[-2:]
        is_page = job["name"] == f"{table}-{scale}-{RENDER}"
        status = Status(table, scale, "page" if is_page else job["name"], DONE)
        log = _last_log([job])
        # Every job of a table writes its page at its end; this one may still wait for them.
        if self._queued([job]) or (self.queue is None and not log):
            return self._by_jobs(status, [job])
        since = log.stat().st_mtime if log else job.get("submitted", 0.0)
        pages = (self.results / table).glob(f"{scale}.md" if is_page else "*.md")
        is_made = (log and logs.names_page(log)) or any(p.stat().st_mtime > since for p in pages)
        return status if is_made else self._by_jobs(status, [job])

    def _queued(self, jobs: Iterable[Record]) -> list[Queued]:
        """Return the jobs that are in the queue."""
        known = self.queue or {}
        return [known[job["name"]] for job in jobs if job["name"] in known]

    def _by_jobs(self, status: Status, jobs: Sequence[Record]) -> Status:
        """Set the state of an unfinished run from its jobs, if any were submitted."""
        queued = self._queued(jobs)
        for one in queued:
            if not one.waits:
                return replace(status, state=RUNNING, job=one.number)
        status = replace(status, seconds_left=None)
        if not jobs:
            return status
        if self.queue is None:
            return replace(status, state=UNKNOWN)
        if queued:
            return replace(status, state=WAITING, job=queued[0].number, reason=queued[0].reason)
        log = _last_log(jobs)
        return self._failed(status, log) if log else replace(status, state=CANCELLED)

    def _failed(self, status: Status, log: Path) -> Status:
        status = replace(status, state=FAILED, seconds_left=None)
        if not log.is_file():  # it failed before its first line
            return status
        return replace(status, lines=logs.last_lines(log), log=str(from_root(log, self.root)))

    def _with_reasons(self, states: Sequence[Status]) -> list[Status]:
        """Add to cancelled runs which failed job they depended on."""
        of = [self.jobs.get((one.table, one.scale, one.name), []) for one in states]
        failed: set[str] = set()
        for state, own in zip(states, of, strict=True):
            if state.state in (FAILED, CANCELLED):
                failed |= {job["name"] for job in own}
        explained = []
        for state, own in zip(states, of, strict=True):
            others = failed - {job["name"] for job in own}
            after = [name for job in own for name in job["after"] if name in others]
            reason = f"after {', '.join(after)}" if after else "before it began"
            explained.append(replace(state, reason=reason) if state.state == CANCELLED else state)
        return explained


def _is_newer(path: Path, jobs: Iterable[Record]) -> bool:
    """Return whether a file was written after all these jobs were submitted.

    A run is done before its job is, if the job has several; a job with `--force` is newer than the
    result that it replaces.
    """
    since = written(path)
    return path.is_file() and all(since >= job.get("submitted", 0.0) for job in jobs)


def _last_log(jobs: Iterable[Record]) -> Path | None:
    """Return the newest log of these jobs, None if none has begun."""
    paths = [job["folder"] / f"{job['name']}.slurm-{job['number']}.log" for job in jobs]
    return max((path for path in paths if path.is_file()), key=written, default=None)


def _progress(folder: Path) -> dict[str, Any]:
    """Read updates, total, loss and remaining seconds of a run from its newest training log."""
    paths = [*folder.glob("train.log"), *folder.glob("*/train.log")]
    if not paths:
        return {}
    newest = max(paths, key=lambda path: path.stat().st_mtime)
    before, total = _planned(folder, newest.parent)
    lines = [logs.read_numbers(line, "num_updates", "loss", "wall") for line in _tail(newest)]
    inner = _last_stretch([found for found in lines if found is not None])
    if not inner:
        return {"updates": before, "total": total}
    (first, _, began), (last, loss, wall) = inner[0], inner[-1]
    updates, left = before + int(last), None
    if total and last > first:
        left = max(0.0, (wall - began) / (last - first) * (total - updates))
    return {"updates": updates, "total": total, "loss": loss, "seconds_left": left}


def _planned(folder: Path, training: Path) -> tuple[int, int | None]:
    """Return the updates of all trainings before one, and of all; None if unknown."""
    journal = Journal.read(folder)
    updates = journal.updates if journal else {}
    name = "" if training == folder else training.name
    before = itertools.takewhile(lambda other: other != name, updates)
    total = sum(updates.values()) if name in updates and all(updates.values()) else None
    return (sum(updates[other] for other in before) if total else 0), total


def _last_stretch(lines: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the lines of the last process; `wall`, the last number, starts at 0 in each."""
    stretch = list(lines[-1:])
    for line in reversed(lines[:-1]):
        if line[-1] > stretch[-1][-1]:
            break
        stretch.append(line)
    return stretch[::-1]


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read().decode(errors="replace").splitlines()


def _held_inodes() -> frozenset[int]:
    """Return the inodes of files locked on this machine, without trying to lock them."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(int(line.split()[5].rsplit(":", 1)[1]) for line in lines if "->" not in line)


def as_json(states: Sequence[Status], problem: str) -> str:
    """Format all statuses as JSON.

    problem: why Slurm's queue is unknown; empty if it is known or not needed.
    """
    content = {
        "problem": problem,
        "done": sum(state.state == DONE for state in states),
        "total": len(states),
        "runs": [vars(state) for state in states],
    }
    return json.dumps(content, indent=1)
