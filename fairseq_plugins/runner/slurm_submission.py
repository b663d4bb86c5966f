"""Submission of runs as Slurm jobs that depend on each other."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import is_pretrained, is_recorded
from fairseq_plugins.runner.slurm_job import EVALUATE, Job, jobs_of, key_of, name_of, script
from fairseq_plugins.runner.slurm_queue import (
    RENDER,
    NoSlurm,
    Queued,
    Record,
    RunKey,
    note_submission,
    read_queue,
    read_submissions,
)


def make_jobs(
    root: Path,
    tables: Sequence[Sequence[PlannedRun]],
    options: RunOptions,
    queued: Mapping[str, Queued] | None = None,
) -> list[Job]:
    """Return the jobs of unfinished runs of tables, in the order of submission.

    queued: the jobs in the queue by name; their runs get no other job.
    """
    queued = queued or {}
    dependent = DependentJobs(root, options, _jobs_in_queue(root, queued))
    for planned in tables:
        dependent.add_all(planned)
    for run in dependent.done:
        print(f"{run.name}: done already")
    for run, name in dependent.queued.items():
        is_own = name in (name_of(run), name_of(run, EVALUATE))
        print(f"{name_of(run)}: {_in_queue(queued[name])}{'' if is_own else f', {name}'}")
    for planned in tables:
        dependent.add_page(planned)
    jobs = [*dependent.jobs.values()]
    return at_most(jobs, options.max_running) if options.max_running else jobs


def submit(
    root: Path,
    tables: Sequence[Sequence[PlannedRun]],
    options: RunOptions,
    further: Sequence[Job] = (),
) -> int:
    """Submit jobs of runs neither done nor queued, and further jobs; return the exit status."""
    queued, problem = {}, None
    try:
        queued = read_queue(root)
    except NoSlurm as error:
        problem = error
    jobs = [*make_jobs(root, tables, options, queued), *further]
    if not jobs:
        return 0
    if problem is not None:
        print(f"{problem}: --slurm works where jobs are submitted from")
        return 1
    numbers = {name: one.number for name, one in queued.items()}
    new: dict[str, int] = {}
    for index, job in enumerate(jobs):
        there = queued.get(job.name)
        # A page that waits in the queue is rendered again after the jobs submitted now.
        is_page = job.name.endswith(f"-{RENDER}")
        if there and not (is_page and set(job.finally_after) & new.keys()):
            print(f"{job.name}: {_in_queue(there)}")
            continue
        number = _submit(root, job, numbers)
        if number is None:
            left = [job.name, *(one.name for one in jobs[index + 1 :] if one.name not in queued)]
            print(f"Submitted: {', '.join(new) or 'none'}")
            print(f"Not submitted: {', '.join(left)}. The same command goes on with these.")
            return 1
        numbers[job.name] = new[job.name] = number
        runs = [list(key_of(run)) for run in job.runs]
        record = {"name": job.name, "number": number, "runs": runs, "stage": job.stage}
        note_submission(root, job.folder, {**record, "after": list(job.after)})
        waits = [name for name in (*job.after, *job.finally_after) if name in numbers]
        after = f", after {', '.join(str(numbers[name]) for name in waits)}" if waits else ""
        print(f"{job.name}: job {number}{after}")
    print("How they are: fairseq-pe status")
    return 0


def _jobs_in_queue(root: Path, queued: Mapping[str, Queued]) -> dict[RunKey, Record]:
    """Map each run to its recorded job in the queue; of two, to the one that evaluates."""
    jobs: dict[RunKey, Record] = {}
    for record in read_submissions(root):
        for table, folder, name in record["runs"] if record["name"] in queued else ():
            if record.get("stage") != "train" or (table, folder, name) not in jobs:
                jobs[table, folder, name] = record
    return jobs


def _in_queue(queued: Queued) -> str:
    return f"is in the queue already as job {queued.number} ({queued.state.lower()})"


def _submit(root: Path, job: Job, numbers: Mapping[str, int]) -> int | None:
    """Submit one job; return its number, or None after printing why it failed."""
    (root / job.folder).mkdir(parents=True, exist_ok=True)  # Slurm makes none for a log
    try:
        done = subprocess.run(
            job.sbatch(dict(numbers)), cwd=root, check=False, stdout=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        print("sbatch was not found: --slurm works where jobs are submitted from")
        return None
    if done.returncode:
        print(f"{job.name}: sbatch ended with status {done.returncode}")
        return None
    # Filters of some sites print lines of their own before the number, and the cluster follows it.
    number = re.search(r"^(\d+)(;|$)", done.stdout, re.MULTILINE)
    if number is None:
        print(f"{job.name}: sbatch must print the number of the job, but printed {done.stdout!r}")
        return None
    return int(number[1])


class DependentJobs:
    """The jobs of a submission, each after the jobs that it depends on."""

    def __init__(
        self, root: Path, options: RunOptions, in_queue: Mapping[RunKey, Record] | None = None
    ) -> None:
        """Take the options of all jobs, and the records of the jobs in the queue by run."""
        self.root, self.options, self._in_queue = root, options, in_queue or {}
        self.jobs: dict[str, Job] = {}
        self.done: list[Run] = []
        self.queued: dict[Run, str] = {}
        self._words = ("--keep", options.keep) if options.keep else ()
        self._packs = {one["name"] for one in self._in_queue.values() if len(one["runs"]) > 1}
        self._last: dict[Run, str] = {}  # by run the job after which it has its result

    def add_all(self, planned: Sequence[PlannedRun]) -> None:
        """Add the jobs of runs, `jobs` of them in one, and of the runs that they start from."""
        together, again = [], "--force" if self.options.force else ""
        for one in planned:
            run = one.run
            if not self.options.force and is_recorded(self.root, one):
                self.done.append(run)
                continue
            has_job = run in self._last or key_of(run) in self._in_queue
            is_shared = not self.options.force and self._same_elsewhere(run) is not None
            if has_job or is_shared:
                self.add(one, again)
            else:
                together.append(one)
        packed = self.options.jobs
        for first in range(0, len(together), packed):
            self._add_jobs(together[first : first + packed], again)

    def add(self, planned: PlannedRun, again: str = "") -> str:
        """Add the jobs of a run and of those before it; return the name of its last job.

        again: as of `jobs_of`.
        """
        run = planned.run
        if run in self._last:
            return self._last[run]
        if queued := self._finishing(run):
            self.queued[run] = self._last[run] = queued
        elif not again and (shared := self._same_elsewhere(run)):
            self._add_after([shared], *jobs_of([planned], self._words, is_copied=True))
        else:
            self._add_jobs([planned], again)
        return self._last[run]

    def _add_jobs(self, planned: Sequence[PlannedRun], again: str) -> None:
        """Add the jobs of runs that share them, after those of the runs that they start from."""
        before = dict.fromkeys(name for one in planned for name in self._jobs_before(one))
        self._add_after([*before], *jobs_of(planned, self._words, again))

    def _jobs_before(self, planned: PlannedRun) -> list[str]:
        """Add the jobs of the run that a run starts from, unless that has its checkpoint.

        In a new clone it has a result and no checkpoint: one job trains it again for all.
        """
        before = planned.pretraining
        if before is None or is_pretrained(self.root, before):
            return []
        return [self.add(before, "--missing-checkpoints" if is_recorded(self.root, before) else "")]

    def _add_after(self, before: Sequence[str], first: Job, *others: Job) -> None:
        """Add the jobs of the same runs, of which the first depends on jobs `before` it.

        A job with several runs fails if one of them fails. Jobs that depend on it start whatever
        its status, and check for the checkpoints that they need. So does a job with several runs
        that depends on others, since its runs need different checkpoints.
        """
        if len(first.runs) > 1:
            self._packs.add(first.name)
        any_status = [name for name in before if {name, first.name} & self._packs]
        succeeded = [name for name in before if name not in any_status]
        first = replace(first, after=tuple(succeeded), finally_after=tuple(any_status))
        self.jobs |= {job.name: job for job in (first, *others)}
        self._last |= dict.fromkeys(first.runs, [first, *others][-1].name)

    def _finishing(self, run: Run) -> str | None:
        """Return the job in the queue that gives a run its result, None without one."""
        record = self._in_queue.get(key_of(run))
        return record["name"] if record and record.get("stage") != "train" else None

    def _same_elsewhere(self, run: Run) -> str | None:
        """Return the job of the same run of another table; Tables 2 and 5 share rows."""
        kind = TABLES[run.table].experiment
        others = [t for t in TABLES if TABLES[t].experiment == kind and t != run.table]
        for same in (replace(run, table=table) for table in others):
            if same in self._last:
                return self._last[same]
            # Studies of one name may have different settings, which a queued job does not record.
            if not run.study and (queued := self._finishing(same)):
                return queued
        return None

    def add_page(self, planned: Sequence[PlannedRun]) -> None:
        """Add the job that renders a table once the jobs of its runs, if any, have ended.

        It starts whatever their status.
        """
        runs = [one.run for one in planned]
        jobs = [job.name for job in self.jobs.values() if {*job.runs} & {*runs}]
        jobs += [name for run, name in self.queued.items() if run in runs]
        if jobs:
            words = (*script(*runs, has_cells=False), *planned[0].options, "--render")
            name = f"{runs[0].table}-{runs[0].folder_name}-{RENDER}"
            after = tuple(dict.fromkeys(jobs))
            self.jobs[name] = Job(name, runs[0].folder.parent, words, finally_after=after)


def at_most(jobs: Sequence[Job], running: int) -> list[Job]:
    """Limit the jobs that train at once: each waits for the one `running` jobs before it.

    Jobs that only evaluate or copy are not counted: they follow the job that they depend on.
    """
    counted = [job.name for job in jobs if job.trains]
    pairs = zip(counted[running:], counted, strict=False)
    before = {name: (earlier,) for name, earlier in pairs}
    return [
        replace(job, finally_after=(*job.finally_after, *before.get(job.name, ()))) for job in jobs
    ]
