"""The jobs of a submission and their dependencies."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run
from fairseq_plugins.records.submissions import RENDER, RunKey
from fairseq_plugins.runner.slurm_job import (
    Job,
    jobs_of,
    key_of,
    script,
)


@dataclass(frozen=True)
class QueuedJob:
    """A job in the queue that makes a run.

    is_pack: whether it makes other runs, too. only_trains: whether another job evaluates the run.
    """

    name: str
    is_pack: bool = False
    only_trains: bool = False


@dataclass
class DependentJobs:
    """The jobs of a submission, each after the jobs that it depends on.

    Attributes:
        is_done: returns whether a run has its result.
        can_be_started_from: returns whether other runs can start from a run's checkpoint.
        force: train again runs that have a result.
        job_words: options of the tables' scripts, for every job.
        in_queue: the jobs in the queue, by the run that they make.
    """

    is_done: Callable[[PlannedRun], bool]
    can_be_started_from: Callable[[PlannedRun], bool]
    force: bool = False
    job_words: tuple[str, ...] = ()
    in_queue: Mapping[RunKey, QueuedJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.done: list[Run] = []
        self.queued: dict[Run, str] = {}  # by run the job in the queue that makes it
        self._packs = {job.name for job in self.in_queue.values() if job.is_pack}
        self._last: dict[Run, str] = {}  # by run the job after which it has its result

    def add_all(self, planned: Sequence[PlannedRun], packed: int = 1) -> None:
        """Add the jobs of runs, `packed` runs in one job, and of the runs that they start from."""
        together, again = [], "--force" if self.force else ""
        for one in planned:
            run = one.run
            if not self.force and self.is_done(one):
                self.done.append(run)
                continue
            has_job = run in self._last or key_of(run) in self.in_queue
            is_shared = not self.force and self._same_elsewhere(run) is not None
            if has_job or is_shared:
                self.add(one, again)
            else:
                together.append(one)
        for first in range(0, len(together), packed):
            self._add_jobs(together[first : first + packed], again)

    def add(self, planned: PlannedRun, again: str = "") -> str:
        """Add the jobs of a run and of those before it; return the name of its last job.

        again: as of `jobs_of`.
        """
        run = planned.run
        if run in self._last:
            return self._last[run]
        queued = self.in_queue.get(key_of(run))
        if queued is not None and not queued.only_trains:
            self.queued[run] = self._last[run] = queued.name
        elif not again and (shared := self._same_elsewhere(run)):
            self._add_after([shared], *jobs_of([planned], self.job_words, is_copied=True))
        else:
            self._add_jobs([planned], again)
        return self._last[run]

    def _add_jobs(self, planned: Sequence[PlannedRun], again: str) -> None:
        """Add the jobs of runs that share them, after those of the runs that they start from."""
        before = dict.fromkeys(name for one in planned for name in self._jobs_before(one))
        self._add_after([*before], *jobs_of(planned, self.job_words, again))

    def _jobs_before(self, planned: PlannedRun) -> list[str]:
        """Add the jobs of the run that a run starts from, unless that has its checkpoint.

        In a new clone it has a result and no checkpoint: one job trains it again for all.
        """
        before = planned.pretraining
        if before is None or self.can_be_started_from(before):
            return []
        return [self.add(before, "--missing-checkpoints" if self.is_done(before) else "")]

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

    def _same_elsewhere(self, run: Run) -> str | None:
        """Return the job of the same run of another table; Tables 2 and 5 share rows."""
        kind = TABLES[run.table].experiment
        others = [t for t in TABLES if TABLES[t].experiment == kind and t != run.table]
        for same in (replace(run, table=table) for table in others):
            if same in self._last:
                return self._last[same]
            # Studies of one name may have different settings, which a queued job does not record.
            queued = None if run.study else self.in_queue.get(key_of(same))
            if queued is not None and not queued.only_trains:
                return queued.name
        return None

    def add_page(self, runs: Collection[Run], options: Sequence[str] = ()) -> None:
        """Add the job that renders a table once all its jobs have ended, whatever their status."""
        jobs = [job.name for job in self.jobs.values() if set(job.runs) & set(runs)]
        jobs += [name for run, name in self.queued.items() if run in runs]
        first = next(iter(runs))
        words = (*script(*runs, has_cells=False), *options, "--render")
        name, after = f"{first.table}-{first.folder_name}-{RENDER}", tuple(dict.fromkeys(jobs))
        self.jobs[name] = Job(name, first.folder.parent, words, finally_after=after)


def at_most(jobs: Sequence[Job], running: int) -> list[Job]:
    """Limit the jobs that train at once: each waits for the one `running` jobs before it.

    Jobs that only evaluate or copy are not counted: they follow the job that they depend on.
    """
    counted = [job.name for job in jobs if job.trains]
    before = dict(zip(counted[running:], counted, strict=False))
    return [
        replace(job, finally_after=(*job.finally_after, before[job.name]))
        if job.name in before
        else job
        for job in jobs
    ]
