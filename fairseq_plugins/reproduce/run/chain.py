"""Which jobs the runs of tables become, and which of them wait for which."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.papers import TABLES
from fairseq_plugins.reproduce.experiments.devices import GPUS_PER_NODE
from fairseq_plugins.reproduce.experiments.planned import PlannedRun
from fairseq_plugins.reproduce.record.runs import Run
from fairseq_plugins.reproduce.run.memory import asked_mib

_CPUS_PER_GPU = 4
# Slurm may send it a minute early, and a training has a minute for its last checkpoint.
_WARNING = "B:USR1@120"
EVALUATE, RENDER = "evaluate", "render"


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
    """

    name: str
    folder: Path
    words: tuple[str, ...]
    gpus: int = 0
    cpus: int = 1
    runs: tuple[Run, ...] = ()
    after: tuple[str, ...] = ()
    finally_after: tuple[str, ...] = ()

    def sbatch(self, numbers: dict[str, int]) -> list[str]:
        """The command that submits it; `numbers` are those of the jobs that it waits for."""
        return [
            "sbatch",
            "--parsable",
            f"--job-name={self.name}",
            *self._devices(),
            # After preemption and a dead node Slurm starts it again, and it goes on in its log.
            "--requeue",
            "--open-mode=append",
            # sbatch itself reads the variable, which a word would override.
            *([] if "SBATCH_SIGNAL" in os.environ else [f"--signal={_WARNING}"]),
            *self._dependency(numbers),
            f"--output={(self.folder / f'{self.name}.slurm-%j.log').as_posix()}",
            f"--wrap={self._wrap()}",
        ]

    def _devices(self) -> list[str]:
        if not self.gpus:
            is_said = any(name.startswith("SBATCH_MEM_PER_") for name in os.environ)
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
    """

    is_done: Callable[[PlannedRun], bool]
    can_be_started_from: Callable[[PlannedRun], bool]
    force: bool = False
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.done: list[Run] = []
        self._last: dict[Run, str] = {}  # the job after which a run has its result
        self._makers: dict[Run, str] = {}  # the first job that needs the checkpoint of a run

    def add_all(self, planned: Sequence[PlannedRun], packed: int = 1) -> None:
        """The jobs of runs, `packed` of them in one, and what they start from."""
        to_make = [one for one in planned if not self._skip(one)]
        if packed < 2:
            for one in to_make:
                self.add(one)
            return
        for first in range(0, len(to_make), packed):
            self._pack(to_make[first : first + packed], packed)

    def _skip(self, planned: PlannedRun) -> bool:
        is_done = not self.force and self.is_done(planned)
        if is_done:
            self.done.append(planned.run)
        return is_done

    def add(self, planned: PlannedRun, *, force: bool | None = None) -> str:
        """The jobs of one run and of those before it; the name of its last one."""
        if planned.run in self._last:
            return self._last[planned.run]
        force = self.force if force is None else force
        after = self._before(planned)
        shared = self._same_elsewhere(planned.run)
        if shared is not None and not force:
            # The other table's result is taken: nothing is trained.
            run = planned.run
            gpus = str(planned.devices.gpus)
            words = (*script(run), "--gpus", gpus, *planned.options, "--srun")
            jobs = [
                Job(
                    name_of(run),
                    run.folder.parent,
                    (*words, "--stage", "evaluate"),
                    runs=(run,),
                    after=(shared,),
                )
            ]
        else:
            jobs = jobs_of_run(planned, self.options, force=force)
        jobs[0] = replace(
            jobs[0], after=(*jobs[0].after, *after), finally_after=self._after_makers(planned)
        )
        self.jobs |= {job.name: job for job in jobs}
        self._last[planned.run] = jobs[-1].name
        return jobs[-1].name

    def _before(self, planned: PlannedRun) -> list[str]:
        before = planned.pretraining
        if before is None or self.can_be_started_from(before) or self.is_done(before):
            return []
        return [self.add(before, force=False)]

    def _after_makers(self, planned: PlannedRun) -> tuple[str, ...]:
        """The job that makes the checkpoint anew, which a result that came from elsewhere lacks.

        The first run that needs it makes it, and the others would wait with their GPUs.
        """
        before = planned.pretraining
        if before is None or self.can_be_started_from(before) or not self.is_done(before):
            return ()
        maker = self._makers.setdefault(before.run, name_of(planned.run))
        return () if maker == name_of(planned.run) else (maker,)

    def _same_elsewhere(self, run: Run) -> str | None:
        """The job of the same run of another table, as Tables 2 and 5 share some."""
        kind = TABLES[run.table].experiment
        for other, name in self._last.items():
            is_same = replace(other, table=run.table) == run
            if is_same and other.table != run.table and TABLES[other.table].experiment == kind:
                return name
        return None

    def _pack(self, planned: Sequence[PlannedRun], at_once: int) -> None:
        """One job for several runs, side by side on one node."""
        if len(planned) == 1:
            self.add(planned[0])
            return
        runs = [one.run for one in planned]
        after = dict.fromkeys(name for one in planned for name in self._before(one))
        gpus = planned[0].devices.gpus
        words = (
            *command_of(runs[0].table),
            *("--scale", runs[0].scale),
            *("--rows", _joined(run.row for run in runs)),
            *("--attention", _joined(run.attention for run in runs)),
            *("--seeds", _joined(str(run.seed) for run in runs)),
            *("--runs", _joined(run.name for run in runs)),
            *("--gpus", str(gpus), "--jobs", str(at_once)),
            *planned[0].options,
            *self.options,
            "--srun",
            *(["--force"] if self.force else []),
        )
        name = name_of(runs[0], f"and-{len(runs) - 1}-more")
        job = Job(
            name, runs[0].folder.parent, words, gpus * at_once, at_once, tuple(runs), tuple(after)
        )
        self.jobs[name] = job
        self._last |= dict.fromkeys(runs, name)

    def add_page(self, runs: Collection[Run], options: Sequence[str] = ()) -> None:
        """The job that renders a table when all of its jobs have ended, however they did."""
        jobs = [job.name for job in self.jobs.values() if set(job.runs) & set(runs)]
        first = next(iter(runs))
        rows = dict.fromkeys(run.row for run in runs)
        words = (*script(first, rows=rows, is_run=False), *options, "--render")
        name = f"{first.table}-{first.folder_name}-{RENDER}"
        self.jobs[name] = Job(name, first.folder.parent, words, finally_after=tuple(jobs))


def _joined(words: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(words))


def at_most(jobs: Sequence[Job], running: int) -> list[Job]:
    """The same jobs, of which that many run at once: each waits for the one `running` before it.

    Pages and what follows a training do not count.
    """
    last = (f"-{EVALUATE}", f"-{RENDER}")
    counted = [job.name for job in jobs if not job.name.endswith(last)]
    before = dict(zip(counted[running:], counted, strict=False))
    return [
        replace(job, finally_after=(*job.finally_after, before[job.name]))
        if job.name in before
        else job
        for job in jobs
    ]
