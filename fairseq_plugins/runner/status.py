"""Status of every run, from results, journals, logs, locks of this machine and Slurm's queue.

Nothing is started, locked or changed, and neither PyTorch nor fairseq is imported.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import from_root, root_folder
from fairseq_plugins.records import logs
from fairseq_plugins.records.identity import fault_of
from fairseq_plugins.runner.journal import Journal, written
from fairseq_plugins.runner.slurm_queue import Queued

DONE, RUNNING, WAITING = "done", "running", "waiting"
STOPPED, FAILED, CANCELLED = "stopped", "failed", "cancelled"
UNKNOWN = "unknown"
STATES = (RUNNING, WAITING, UNKNOWN, FAILED, CANCELLED, STOPPED, DONE)
_RENDER = "render"  # suffix of the name of a page's job, as `slurm_job.RENDER`
_TAIL = 1 << 16  # bytes that are read at the end of a log
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True)
class Status:
    """Status of a run, or of a job that makes a page.

    Attributes:
        table: of the run.
        scale: of the run, or its study.
        name: of the run; `page`, or the name of another job without runs.
        state: one of `STATES`. STOPPED was interrupted and can be resumed. UNKNOWN was submitted,
            but Slurm does not answer.
        job: number of its job in the queue, None without one.
        updates: of all its trainings so far.
        total: updates of all its trainings at the end.
        loss: base 2, last logged.
        seconds_left: of all its trainings, at their last speed.
        reason: why it waits (Slurm's word), was cancelled or failed.
        lines: the last lines of the log of a failed run.
        log: the log of a failed run, relative to the root if it is below it.
    """

    table: str
    scale: str
    name: str
    state: str
    job: int | None = None
    updates: int | None = None
    total: int | None = None
    loss: float | None = None
    seconds_left: float | None = None
    reason: str = ""
    lines: list[str] = field(default_factory=list)
    log: str = ""


@dataclass(frozen=True)
class _RunKey:
    """Identification of a run by its folder."""

    table: str
    scale: str
    name: str

    def folder(self, root: Path) -> Path:
        return root / root_folder("checkpoints") / self.table / self.scale / self.name

    def result(self, root: Path) -> Path:
        return root / root_folder("results") / self.table / self.scale / f"{self.name}.json"


def gather(
    root: Path, submitted: Sequence[Mapping[str, Any]], queue: Mapping[str, Queued] | None
) -> list[Status]:
    """Return the status of all runs with a result, folder or job, and of the pages, by table.

    Args:
        root: folder of results and checkpoints.
        submitted: jobs from `submissions.read`, read before the queue.
        queue: None if Slurm does not answer.
    """
    jobs: dict[_RunKey, list[Mapping[str, Any]]] = {}
    for record in submitted:
        for run in record["runs"]:
            jobs.setdefault(_RunKey(*run), []).append(record)
    found = {*jobs, *_results(root), *_folders(root)}
    held = _held_inodes()
    ordered = sorted(found, key=lambda one: (one.table, one.scale, one.name))
    states = [_of_run(root, one, jobs.get(one, []), queue, held) for one in ordered]
    states += [_of_page(root, record, queue) for record in submitted if not record["runs"]]
    return _with_reasons(sorted(states, key=lambda one: (one.table, one.scale)), jobs)


def _results(root: Path) -> Iterator[_RunKey]:
    for path in (root / root_folder("results")).glob("*/*/*-s*.json"):
        yield _RunKey(path.parts[-3], path.parts[-2], path.stem)


def _folders(root: Path) -> Iterator[_RunKey]:
    for path in (root / root_folder("checkpoints")).glob("*/*/*/run.json"):
        name = path.parent.name
        if not name.endswith(".previous"):
            yield _RunKey(path.parts[-4], path.parts[-3], name)


def _of_run(
    root: Path,
    own: _RunKey,
    jobs: Sequence[Mapping[str, Any]],
    queue: Mapping[str, Queued] | None,
    held: frozenset[int],
) -> Status:
    found = Status(own.table, own.scale, own.name, STOPPED)
    folder = own.folder(root)
    queued = _queued(jobs, queue)
    if _inode(folder.with_name(f"{folder.name}.lock")) in held:
        number = next((one.number for one in queued if not one.waits), None)
        return replace(found, state=RUNNING, job=number, **_progress(folder))
    names = {one.name for one in queued}
    waiting = [job for job in jobs if job["name"] in names]
    result, journal = own.result(root), Journal.read(folder / "run.json")
    # A run that began after its result was written: with --force, or for its checkpoint.
    is_open = journal is not None and journal.is_open_after(result)
    if not is_open and _is_newer(result, waiting):
        fault = fault_of(result)
        if not fault:
            return replace(found, state=DONE)
        where = from_root(result, root)
        return replace(found, state=FAILED, reason=f"{where} is damaged: {fault}")
    found = replace(found, **_progress(folder))
    last = journal.content if journal and is_open else {}
    if last.get("failed") and _is_newer(folder / "run.json", waiting):
        log = Path(os.path.normpath(folder / last["log"]))
        return _failed(root, replace(found, reason=last["failed"]), log)
    return _by_jobs(root, found, jobs, queue)


def _of_page(root: Path, job: Mapping[str, Any], queue: Mapping[str, Queued] | None) -> Status:
    """Return the status of a job without runs, which makes a page or Table 9."""
    table, scale = job["folder"].parts[-2:]
    is_page = job["name"] == f"{table}-{scale}-{_RENDER}"
    found = Status(table, scale, "page" if is_page else job["name"], DONE)
    if _queued([job], queue):
        return _by_jobs(root, found, [job], queue)
    pages = (root / root_folder("results") / table).glob(f"{scale}.md" if is_page else "*.md")
    # Every job of a table writes its page at its end; this one may still wait for them.
    may_wait = queue is None and not _last_log([job])
    is_made = not may_wait and _is_made(pages, job)
    return found if is_made else _by_jobs(root, found, [job], queue)


def _is_made(pages: Iterable[Path], job: Mapping[str, Any]) -> bool:
    """Tell whether a page was written by its job or later."""
    log = _last_log([job])
    if log and logs.says_page(log):
        return True
    since = log.stat().st_mtime if log else job.get("submitted", 0.0)
    return any(page.stat().st_mtime > since for page in pages)


def _queued(jobs: Iterable[Mapping[str, Any]], queue: Mapping[str, Queued] | None) -> list[Queued]:
    """Return the jobs that are in the queue."""
    known = queue or {}
    return [known[job["name"]] for job in jobs if job["name"] in known]


def _by_jobs(
    root: Path,
    found: Status,
    jobs: Sequence[Mapping[str, Any]],
    queue: Mapping[str, Queued] | None,
) -> Status:
    """Set the state of an unfinished run from its jobs, if any were submitted."""
    queued = _queued(jobs, queue)
    for one in queued:
        if not one.waits:
            return replace(found, state=RUNNING, job=one.number)
    found = replace(found, seconds_left=None)
    if not jobs:
        return found
    if queue is None:
        return replace(found, state=UNKNOWN)
    if queued:
        return replace(found, state=WAITING, job=queued[0].number, reason=queued[0].reason)
    if not (log := _last_log(jobs)):
        return replace(found, state=CANCELLED)
    return _failed(root, found, log)


def _failed(root: Path, found: Status, log: Path) -> Status:
    found = replace(found, state=FAILED, seconds_left=None)
    if not log.is_file():  # it failed before it logged anything
        return found
    return replace(found, lines=logs.last_lines(log), log=str(from_root(log, root)))


def _is_newer(path: Path, jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether a file was written after all these jobs were submitted.

    A run is done before its job is, if the job has several; a job with `--force` is newer than the
    result that it replaces.
    """
    since = written(path)
    return path.is_file() and all(since >= job.get("submitted", 0.0) for job in jobs)


def _last_log(jobs: Iterable[Mapping[str, Any]]) -> Path | None:
    """Return the newest log of these jobs, None if none has begun."""
    paths = [job["folder"] / f"{job['name']}.slurm-{job['number']}.log" for job in jobs]
    found = [path for path in paths if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _with_reasons(
    states: list[Status], jobs: Mapping[_RunKey, Sequence[Mapping[str, Any]]]
) -> list[Status]:
    """Add to cancelled runs which failed job they depended on."""
    failed = {
        job["name"]
        for state in states
        if state.state in (FAILED, CANCELLED)
        for job in jobs.get(_RunKey(state.table, state.scale, state.name), [])
    }

    def reason(state: Status) -> str:
        own = jobs.get(_RunKey(state.table, state.scale, state.name), [])
        names = {job["name"] for job in own}
        after = [name for job in own for name in job["after"] if name in failed - names]
        return f"after {', '.join(after)}" if after else "before it began"

    return [
        replace(state, reason=reason(state)) if state.state == CANCELLED else state
        for state in states
    ]


def _progress(folder: Path) -> dict[str, Any]:
    """Read updates, total, loss and remaining seconds of a run from its newest training log."""
    paths = [*folder.glob("train.log"), *folder.glob("*/train.log")]
    if not paths:
        return {"updates": None, "total": None, "loss": None, "seconds_left": None}
    newest = max(paths, key=lambda path: path.stat().st_mtime)
    before, total = _planned(folder, newest.parent)
    lines = [logs.read_numbers(line, "num_updates", "loss", "wall") for line in _tail(newest)]
    inner = _last_stretch([found for found in lines if found is not None])
    if not inner:
        return {"updates": before, "total": total, "loss": None, "seconds_left": None}
    (first, _, began), (last, loss, wall) = inner[0], inner[-1]
    updates, left = before + int(last), None
    if total and last > first:
        left = max(0.0, (wall - began) / (last - first) * (total - updates))
    return {"updates": updates, "total": total, "loss": loss, "seconds_left": left}


def _planned(folder: Path, training: Path) -> tuple[int, int | None]:
    """Return the updates of all trainings before one, and of all; None if unknown."""
    journal = Journal.read(folder / "run.json")
    updates: dict[str, int] = journal.content["updates"] if journal else {}
    name = "" if training == folder else training.name
    before = itertools.takewhile(lambda other: other != name, updates)
    total = sum(updates.values()) if name in updates and all(updates.values()) else None
    return (sum(updates[other] for other in before) if total else 0), total


def _last_stretch(lines: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the lines of the last process; `wall`, the last number, starts at 0 in each."""
    found = list(lines[-1:])
    for line in reversed(lines[:-1]):
        if line[-1] > found[-1][-1]:
            break
        found.append(line)
    return found[::-1]


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


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def as_json(states: Sequence[Status], problem: str) -> str:
    """Format all statuses as JSON.

    problem: why Slurm's queue is not known, empty if that does not matter.
    """
    found = {
        "problem": problem,
        "done": sum(state.state == DONE for state in states),
        "total": len(states),
        "runs": [vars(state) for state in states],
    }
    return json.dumps(found, indent=1)
