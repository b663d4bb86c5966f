"""The jobs of a submission and their dependencies."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run
from fairseq_plugins.records.submissions import RENDER, RunKey
from fairseq_plugins.runner.slurm_job import (
    Job,
    copying_job,
    jobs_of_run,
    joined,
    key_of,
    name_of,
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
        self._makers: dict[Run, str] = {}  # by run the first job that needs its checkpoint

    def add_all(self, planned: Sequence[PlannedRun], packed: int = 1) -> None:
        """Add the jobs of runs, `packed` runs in one job, and of the runs that they start from."""
        together = []
        for one in planned:
            run = one.run
            if not self.force and self.is_done(one):
                self.done.append(run)
                continue
            has_job = run in self._last or key_of(run) in self.in_queue
            is_shared = not self.force and self._same_elsewhere(run) is not None
            if packed > 1 and not has_job and not is_shared:
                together.append(one)
            else:
                self.add(one)
        for first in range(0, len(together), packed):
            self._pack(together[first : first + packed])

    def add(self, planned: PlannedRun, *, force: bool | None = None) -> str:
        """Add the jobs of a run and of those before it; return the name of its last job."""
        run = planned.run
        if run in self._last:
            return self._last[run]
        queued = self.in_queue.get(key_of(run))
        if queued is not None and not queued.only_trains:
            self.queued[run] = self._last[run] = queued.name
            self._after_makers(planned, queued.name)
            return queued.name
        force = self.force if force is None else force
        shared = None if force else self._same_elsewhere(run)
        if shared is None:
            before = self._add_before(planned)
            jobs = jobs_of_run(planned, self.job_words, force=force)
        else:
            before, jobs = [shared], [copying_job(planned)]
        jobs[0] = self._with_dependencies(
            jobs[0], before, self._after_makers(planned, jobs[0].name)
        )
        self.jobs |= {job.name: job for job in jobs}
        self._last[run] = jobs[-1].name
        return jobs[-1].name

    def _with_dependencies(self, job: Job, before: Iterable[str], makers: Iterable[str]) -> Job:
        """Return the job with its dependencies.

        A job with several runs fails if one of them fails. Jobs that depend on it start whatever
        its status, and check for the checkpoints that they need. So does a job with several runs
        that depends on others, since its runs need different checkpoints.

        before: jobs of the runs that its runs start from. makers: jobs that train their missing
        checkpoints.
        """
        is_pack = job.name in self._packs
        any_status = [name for name in before if is_pack or name in self._packs]
        succeeded = [name for name in before if name not in any_status]
        finally_after = (*dict.fromkeys([*any_status, *makers]),)
        return replace(job, after=(*succeeded,), finally_after=finally_after)

    def _add_before(self, planned: PlannedRun) -> list[str]:
        """Add the jobs of the run that a run starts from, unless it is done; return the last."""
        before = planned.pretraining
        if before is None or self.can_be_started_from(before) or self.is_done(before):
            return []
        return [self.add(before, force=False)]

    def _after_makers(self, planned: PlannedRun, job: str) -> tuple[str, ...]:
        """Return the job that trains a missing checkpoint of a run that has its result.

        The first job that needs the checkpoint trains it. Without a dependency the others would
        hold their GPUs while they wait.
        """
        before = planned.pretraining
        if before is None or self.can_be_started_from(before) or not self.is_done(before):
            return ()
        maker = self._makers.setdefault(before.run, job)
        return () if maker == job else (maker,)

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

    def _pack(self, planned: Sequence[PlannedRun]) -> None:
        """Add one job for several runs, side by side on one node."""
        if len(planned) == 1:
            self.add(planned[0])
            return
        runs = [one.run for one in planned]
        name = name_of(runs[0], f"and-{len(runs) - 1}-more")
        before = dict.fromkeys(parent for one in planned for parent in self._add_before(one))
        makers = dict.fromkeys(maker for one in planned for maker in self._after_makers(one, name))
        gpus = planned[0].devices.gpus
        words = (
            *script(*runs),
            *("--runs", joined(run.name for run in runs)),
            *("--gpus", str(gpus), "--jobs", str(len(runs))),
            *planned[0].options,
            *self.job_words,
            "--srun",
            *(["--force"] if self.force else []),
        )
        job = Job(name, runs[0].folder.parent, words, gpus * len(runs), len(runs), tuple(runs))
        self._packs.add(name)
        self.jobs[name] = self._with_dependencies(job, before, makers)
        self._last |= dict.fromkeys(runs, name)

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
