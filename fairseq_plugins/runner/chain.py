"""Which jobs the runs of tables become, and which of them wait for which."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.experiments.devices import GPUS_PER_NODE
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.memory import asked_mib

_CPUS_PER_GPU = 4
# Slurm may send it a minute early, and a training has a minute for its last checkpoint.
_WARNING = "B:USR1@120"
EVALUATE, RENDER = "evaluate", "render"
Cell = tuple[str, str, str]  # of a run: its table, the folder of its scale or study, its name


@dataclass(frozen=True)
class Job:
    """A job of Slurm.

    Attributes:
        name: also the name of its log.
        folder: of its log, relative to the repository.
        words: what it runs, in the repository.
        gpus: of all its nodes, 0 for none.
        cpus: where it has no GPUs.
        runs: which it makes or measures.
        after: names of jobs that must have ended well before it begins.
        finally_after: names of jobs that must have ended.
        alone: whether it has its node for itself.
    """

    name: str
    folder: Path
    words: tuple[str, ...]
    gpus: int = 0
    cpus: int = 1
    runs: tuple[Run, ...] = ()
    after: tuple[str, ...] = ()
    finally_after: tuple[str, ...] = ()
    alone: bool = False

    def sbatch(self, numbers: dict[str, int]) -> list[str]:
        """The command that submits it; `numbers` are those of the jobs that it waits for."""
        # Others would end at the signal. sbatch itself reads the variable, which a word would
        # override.
        is_warned = "--srun" in self.words and "SBATCH_SIGNAL" not in os.environ
        return [
            "sbatch",
            "--parsable",
            f"--job-name={self.name}",
            *self._devices(),
            *(["--exclusive"] if self.alone else []),
            # All of its node's, where a number for each CPU would be asked for all of them.
            *(["--mem=0"] if self.alone and not _is_memory_said() else []),
            # After preemption and a dead node Slurm starts it again, and it goes on in its log.
            "--requeue",
            "--open-mode=append",
            *([f"--signal={_WARNING}"] if is_warned else []),
            *self._dependency(numbers),
            f"--output={(self.folder / f'{self.name}.slurm-%j.log').as_posix()}",
            f"--wrap={self._wrap()}",
        ]

    @property
    def stage(self) -> str:
        """What it does of its runs, as `attempt.Stage` has it."""
        return self.words[self.words.index("--stage") + 1] if "--stage" in self.words else "all"

    @property
    def trains(self) -> bool:
        """Whether it makes its runs, beyond measuring them or taking their results."""
        return bool(self.runs) and self.stage in ("all", "train")

    def _devices(self) -> list[str]:
        if not self.gpus:
            is_said = self.alone or _is_memory_said()
            return [
                "--nodes=1",
                "--ntasks-per-node=1",
                f"--cpus-per-task={self.cpus}",
                *([] if is_said else [f"--mem-per-cpu={asked_mib(self.runs)}M"]),
            ]
        return [
            f"--nodes={max(1, self.gpus // GPUS_PER_NODE)}",
            "--ntasks-per-node=1",
            f"--gpus-per-node={min(self.gpus, GPUS_PER_NODE)}",
            # A trainer and its data workers; without it Slurm gives one core to all of a node.
            *([] if "SBATCH_CPUS_PER_GPU" in os.environ else [f"--cpus-per-gpu={_CPUS_PER_GPU}"]),
        ]

    def _dependency(self, numbers: dict[str, int]) -> list[str]:
        """Also after a job of its own name, which might be submitted twice at once."""
        kinds = {"afterok": self.after, "afterany": self.finally_after}
        words = [
            ":".join([kind, *(str(numbers[name]) for name in names if name in numbers)])
            for kind, names in kinds.items()
        ]
        known = [word for word in words if ":" in word]
        return [f"--dependency={','.join([*known, 'singleton'])}", "--kill-on-invalid-dep=yes"]

    def _wrap(self) -> str:
        # The signal is for the shell that sbatch starts, so the program takes its place.
        command = f"exec {shlex.join(self.words)}"
        threads = 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$SLURM_CPUS_PER_TASK}"'
        return command if self.gpus else f"{threads}; {command}"


def _is_memory_said() -> bool:
    return any(name.startswith("SBATCH_MEM_PER_") for name in os.environ)


@dataclass(frozen=True)
class Holder:
    """A job in the queue that makes a run.

    Attributes:
        name: of the job.
        is_pack: whether it makes others, too.
        only_trains: whether another job is to measure.
    """

    name: str
    is_pack: bool = False
    only_trains: bool = False


def cell_of(run: Run) -> Cell:
    """What tells a run from all others, also in what is noted of jobs."""
    return run.table, run.folder_name, run.name


def name_of(run: Run, suffix: str = "") -> str:
    """The name of a run's job."""
    return "-".join(filter(None, (run.table, run.folder_name, run.name, suffix)))


def script(run: Run, *, rows: Iterable[str] = (), is_run: bool = True) -> list[str]:
    """The table's script for a run, or for its rows."""
    cells = [
        *("--rows", ",".join(rows) or run.row),
        *(("--attention", run.attention, "--seeds", str(run.seed)) if is_run else ()),
    ]
    return [*command_of(run.table), "--scale", run.scale, *cells]


def command_of(table: str) -> tuple[str, ...]:
    """What makes a table: its script, of which an installed package has none."""
    own = (sys.executable, "-m", "fairseq_plugins", "table", table)
    return (f"scripts/{table}.sh",) if IS_CHECKOUT else own


def jobs_of_run(planned: PlannedRun, options: Sequence[str] = (), *, force: bool) -> list[Job]:
    """A run's job; where several GPUs would wait while one measures, that is a job of its own."""
    run, gpus = planned.run, planned.devices.gpus
    words = (
        *script(run),
        *("--gpus", str(gpus)),
        *planned.options,
        *options,
        "--srun",
        *(["--force"] if force else []),
    )
    job = Job(name_of(run), run.folder.parent, words, gpus, runs=(run,))
    if not _measures_apart(planned) or force:
        return [job]
    training = replace(job, words=(*words, "--stage", "train"))
    measuring = replace(
        job,
        name=name_of(run, EVALUATE),
        words=(*words, "--stage", "evaluate"),
        gpus=1,
        after=(job.name,),
    )
    return [training, measuring]


def _taking(planned: PlannedRun) -> Job:
    """The job that takes another table's result of the same run, which trains nothing."""
    run = planned.run
    words = (*script(run), "--gpus", str(planned.devices.gpus), *planned.options)
    return Job(name_of(run), run.folder.parent, (*words, "--srun", "--stage", "take"), runs=(run,))


def _measures_apart(planned: PlannedRun) -> bool:
    """Of one training, whose evaluation is a command; of several each is measured by itself."""
    if planned.devices.gpus < 2 or len(planned.trainings) != 1:
        return False
    training = planned.final
    checkpoint = training.folder / training.evaluated
    return bool(planned.experiment.steps(training, checkpoint, planned.run, planned.devices.gpus))


@dataclass
class Chain:
    """The jobs of a submission, each after those that it waits for.

    Attributes:
        is_done: whether a run has its result.
        can_be_started_from: whether a run's checkpoint is there for others.
        force: whether what is done is made again.
        options: of the tables' scripts, for every job.
        held: the jobs in the queue by the run that they make.
    """

    is_done: Callable[[PlannedRun], bool]
    can_be_started_from: Callable[[PlannedRun], bool]
    force: bool = False
    options: tuple[str, ...] = ()
    held: Mapping[Cell, Holder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.done: list[Run] = []
        self.queued: dict[Run, str] = {}  # the job in the queue that makes it
        self._packs = {holder.name for holder in self.held.values() if holder.is_pack}
        self._last: dict[Run, str] = {}  # the job after which a run has its result
        self._makers: dict[Run, str] = {}  # the first job that needs the checkpoint of a run

    def add_all(self, planned: Sequence[PlannedRun], packed: int = 1) -> None:
        """The jobs of runs, `packed` of them in one, and what they start from."""
        together = []
        for one in planned:
            if self._skip(one):
                continue
            if packed > 1 and self._has_no_job(one.run):
                together.append(one)
            else:
                self.add(one)
        for first in range(0, len(together), packed):
            self._pack(together[first : first + packed])

    def _has_no_job(self, run: Run) -> bool:
        """Whether neither a job of this submission nor one in the queue makes it."""
        is_shared = not self.force and self._same_elsewhere(run) is not None
        return not (run in self._last or cell_of(run) in self.held or is_shared)

    def _skip(self, planned: PlannedRun) -> bool:
        is_done = not self.force and self.is_done(planned)
        if is_done:
            self.done.append(planned.run)
        return is_done

    def add(self, planned: PlannedRun, *, force: bool | None = None) -> str:
        """The jobs of one run and of those before it; the name of its last one."""
        run = planned.run
        if run in self._last:
            return self._last[run]
        holder = self.held.get(cell_of(run))
        if holder is not None and not holder.only_trains:
            self.queued[run] = self._last[run] = holder.name
            self._after_makers(planned, holder.name)
            return holder.name
        force = self.force if force is None else force
        shared = None if force else self._same_elsewhere(run)
        if shared is None:
            before = self._before(planned)
            jobs = jobs_of_run(planned, self.options, force=force)
        else:
            before, jobs = [shared], [_taking(planned)]
        jobs[0] = self._waiting(jobs[0], before, self._after_makers(planned, jobs[0].name))
        self.jobs |= {job.name: job for job in jobs}
        self._last[run] = jobs[-1].name
        return jobs[-1].name

    def _waiting(self, job: Job, before: Iterable[str], makers: Iterable[str]) -> Job:
        """The job after those that make what its runs start from.

        One that makes several runs fails where one of them does, so that its end says nothing about
        the others: who waits for it looks for what it needs. So does one that makes several itself,
        whose runs do not all need the same.
        """
        is_pack = job.name in self._packs
        anyhow = [name for name in before if is_pack or name in self._packs]
        well = [name for name in before if name not in anyhow]
        return replace(job, after=(*well,), finally_after=(*dict.fromkeys([*anyhow, *makers]),))

    def _before(self, planned: PlannedRun) -> list[str]:
        before = planned.pretraining
        if before is None or self.can_be_started_from(before) or self.is_done(before):
            return []
        return [self.add(before, force=False)]

    def _after_makers(self, planned: PlannedRun, job: str) -> tuple[str, ...]:
        """The job that makes the checkpoint anew, which a result that came from elsewhere lacks.

        The first job that needs it makes it, and the others would wait with their GPUs.
        """
        before = planned.pretraining
        if before is None or self.can_be_started_from(before) or not self.is_done(before):
            return ()
        maker = self._makers.setdefault(before.run, job)
        return () if maker == job else (maker,)

    def _same_elsewhere(self, run: Run) -> str | None:
        """The job of the same run of another table, as Tables 2 and 5 share some."""
        kind = TABLES[run.table].experiment
        others = [t for t in TABLES if TABLES[t].experiment == kind and t != run.table]
        for same in (replace(run, table=table) for table in others):
            if same in self._last:
                return self._last[same]
            # Studies of one name may differ in their settings, of which a noted job says nothing.
            holder = None if run.study else self.held.get(cell_of(same))
            if holder is not None and not holder.only_trains:
                return holder.name
        return None

    def _pack(self, planned: Sequence[PlannedRun]) -> None:
        """One job for several runs, side by side on one node."""
        if len(planned) == 1:
            self.add(planned[0])
            return
        runs = [one.run for one in planned]
        name = name_of(runs[0], f"and-{len(runs) - 1}-more")
        before = dict.fromkeys(parent for one in planned for parent in self._before(one))
        makers = dict.fromkeys(maker for one in planned for maker in self._after_makers(one, name))
        gpus = planned[0].devices.gpus
        words = (
            *command_of(runs[0].table),
            *("--scale", runs[0].scale),
            *("--rows", _joined(run.row for run in runs)),
            *("--attention", _joined(run.attention for run in runs)),
            *("--seeds", _joined(str(run.seed) for run in runs)),
            *("--runs", _joined(run.name for run in runs)),
            *("--gpus", str(gpus), "--jobs", str(len(runs))),
            *planned[0].options,
            *self.options,
            "--srun",
            *(["--force"] if self.force else []),
        )
        job = Job(name, runs[0].folder.parent, words, gpus * len(runs), len(runs), tuple(runs))
        self._packs.add(name)
        self.jobs[name] = self._waiting(job, before, makers)
        self._last |= dict.fromkeys(runs, name)

    def add_page(self, runs: Collection[Run], options: Sequence[str] = ()) -> None:
        """The job that renders a table when all of its jobs have ended, however they did."""
        jobs = [job.name for job in self.jobs.values() if set(job.runs) & set(runs)]
        jobs += [name for run, name in self.queued.items() if run in runs]
        first = next(iter(runs))
        rows = dict.fromkeys(run.row for run in runs)
        words = (*script(first, rows=rows, is_run=False), *options, "--render")
        name, after = f"{first.table}-{first.folder_name}-{RENDER}", tuple(dict.fromkeys(jobs))
        self.jobs[name] = Job(name, first.folder.parent, words, finally_after=after)


def _joined(words: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(words))


def at_most(jobs: Sequence[Job], running: int) -> list[Job]:
    """The same jobs, of which that many run at once: each waits for the one `running` before it.

    Those that train nothing do not count: they follow what they wait for.
    """
    counted = [job.name for job in jobs if job.trains]
    before = dict(zip(counted[running:], counted, strict=False))
    return [
        replace(job, finally_after=(*job.finally_after, before[job.name]))
        if job.name in before
        else job
        for job in jobs
    ]
