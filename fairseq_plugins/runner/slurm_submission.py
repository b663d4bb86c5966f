"""Submission of runs as Slurm jobs."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.records import submissions
from fairseq_plugins.records.submissions import RENDER, RunKey
from fairseq_plugins.runner.dependent_jobs import DependentJobs, QueuedJob, at_most
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import is_pretrained, is_recorded
from fairseq_plugins.runner.slurm_job import EVALUATE, Job, key_of, name_of
from fairseq_plugins.runner.slurm_queue import NoSlurm, Queued, read_queue


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
    dependent = DependentJobs(
        lambda one: is_recorded(root, one),
        lambda one: is_pretrained(root, one),
        options.force,
        options.job_words,
        _jobs_in_queue(root, queued),
    )
    for planned in tables:
        dependent.add_all(planned, options.jobs)
    for run in dependent.done:
        print(f"{run.name}: done already")
    for run, name in dependent.queued.items():
        is_own = name in (name_of(run), name_of(run, EVALUATE))
        print(f"{name_of(run)}: {_in_queue(queued[name])}{'' if is_own else f', {name}'}")
    for planned in tables:
        runs = {one.run: None for one in planned}
        made = {run for job in dependent.jobs.values() for run in job.runs}
        if runs.keys() & (made | dependent.queued.keys()):
            dependent.add_page(runs, planned[0].options)
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
        submissions.note(root, job.folder, {**record, "after": list(job.after)})
        waits = [name for name in (*job.after, *job.finally_after) if name in numbers]
        after = f", after {', '.join(str(numbers[name]) for name in waits)}" if waits else ""
        print(f"{job.name}: job {number}{after}")
    print("How they are: fairseq-pe status")
    return 0


def _jobs_in_queue(root: Path, queued: Mapping[str, Queued]) -> dict[RunKey, QueuedJob]:
    """Map each run to its recorded job in the queue; of two, to the one that evaluates."""
    jobs: dict[RunKey, QueuedJob] = {}
    for record in submissions.read(root):
        if record["name"] not in queued:
            continue
        only_trains = record.get("stage") == "train"
        job = QueuedJob(record["name"], len(record["runs"]) > 1, only_trains)
        for table, folder, name in record["runs"]:
            if not only_trains or (table, folder, name) not in jobs:
                jobs[table, folder, name] = job
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
