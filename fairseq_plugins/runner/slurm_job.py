"""Slurm jobs of runs: their commands, devices, dependencies and names."""

import math
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.experiments.devices import GPUS_PER_NODE
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.slurm_queue import RunKey

_CPUS_PER_GPU = 4
# SIGUSR1 to the batch shell. Slurm may send it up to a minute early, and
# a training has a minute to save.
_WARNING = "B:USR1@120"
EVALUATE = "evaluate"  # suffix of the name of a job that evaluates
# Experiments by family; their runs have similar peaks.
FAMILIES = {
    "lm": ("lm", "floor_sweep"),
    "mlm": ("mlm",),
    "glue": ("lrpe_glue", "bert_glue"),
    # A SQuAD job also trains a missing model that it starts from.
    "squad": ("bert_start", "bert_continued", "squad"),
    "mt": ("mt",),
}
# Highest peaks in benchmarks/results by family and scale, MiB over all processes of a job, from
# `python -m benchmarks.job_memory`.
PEAKS_MIB: dict[str, dict[str, int]] = {
    "lm": {"toy": 977, "mini": 1057},
    "mlm": {"toy": 1005, "mini": 1255},
    "glue": {"toy": 1036, "mini": 1311},
    "squad": {"toy": 1007, "mini": 1218},
    "mt": {"toy": 1102, "mini": 1601},
}
MARGIN = 1.5  # for other rows, data, versions and processors
DEFAULT_MIB = 3072  # without a measurement
_STEP_MIB = 512


@dataclass(frozen=True)
class Job:
    """A Slurm job."""

    name: str  # of the job and of its log
    folder: Path  # of its log, relative to the root
    words: tuple[str, ...]  # the command, run in the root
    gpus: int = 0  # of all its nodes, 0 for a CPU
    runs: tuple[Run, ...] = ()
    after: tuple[str, ...] = ()  # jobs that must succeed before it starts (afterok)
    finally_after: tuple[str, ...] = ()  # those that must have ended, in any way (afterany)
    alone: bool = False  # whether it gets a whole node

    def sbatch(self, numbers: dict[str, int]) -> list[str]:
        """Return the command that submits it; numbers: of the jobs that it waits for, by name."""
        # The signal would end other commands. An option would override a user's variable.
        is_warned = "--srun" in self.words and "SBATCH_SIGNAL" not in os.environ
        # Slurm signals the shell that sbatch starts, so the program replaces it.
        command = f"exec {shlex.join(self.words)}"
        if not self.gpus:
            command = (
                f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-$SLURM_CPUS_PER_TASK}}"; {command}'
            )
        return [
            "sbatch",
            "--parsable",
            f"--job-name={self.name}",
            *self._devices(),
            *(["--exclusive"] if self.alone else []),
            # All memory of the node; an amount for each CPU would count for all CPUs of the node.
            *(["--mem=0"] if self.alone and not _is_memory_set() else []),
            # After preemption or a node failure Slurm starts it again; it appends to its log.
            "--requeue",
            "--open-mode=append",
            *([f"--signal={_WARNING}"] if is_warned else []),
            *self._dependency(numbers),
            f"--output={(self.folder / f'{self.name}.slurm-%j.log').as_posix()}",
            f"--wrap={command}",
        ]

    @property
    def stage(self) -> str:
        """The `Stage` of its runs."""
        return self.words[self.words.index("--stage") + 1] if "--stage" in self.words else "all"

    @property
    def trains(self) -> bool:
        """Return whether it trains runs, not only evaluates or copies them."""
        return bool(self.runs) and self.stage in ("all", "train")

    def _devices(self) -> list[str]:
        if not self.gpus:
            is_set = self.alone or _is_memory_set()
            return [
                "--nodes=1",
                "--ntasks-per-node=1",
                f"--cpus-per-task={max(1, len(self.runs))}",
                *([] if is_set else [f"--mem-per-cpu={requested_mib(self.runs)}M"]),
            ]
        return [
            f"--nodes={max(1, self.gpus // GPUS_PER_NODE)}",
            "--ntasks-per-node=1",
            f"--gpus-per-node={min(self.gpus, GPUS_PER_NODE)}",
            # For trainer and data workers; by default all GPUs of a node share one core.
            *([] if "SBATCH_CPUS_PER_GPU" in os.environ else [f"--cpus-per-gpu={_CPUS_PER_GPU}"]),
        ]

    def _dependency(self, numbers: dict[str, int]) -> list[str]:
        """Return the dependency options; `singleton` also waits for jobs of the same name."""
        kinds = {"afterok": self.after, "afterany": self.finally_after}
        found = ["singleton"]
        for kind, names in kinds.items():
            if known := [str(numbers[name]) for name in names if name in numbers]:
                found.insert(-1, ":".join([kind, *known]))
        return [f"--dependency={','.join(found)}", "--kill-on-invalid-dep=yes"]


def _is_memory_set() -> bool:
    return any(name.startswith("SBATCH_MEM_PER_") for name in os.environ)


def requested_mib(runs: Sequence[Run]) -> int:
    """Return the memory per core that a job on a CPU requests; each of its runs has one core."""
    return max(map(_mib_of, runs), default=DEFAULT_MIB)


def _mib_of(run: Run) -> int:
    """Return the measured peak with a margin, rounded up."""
    experiment = TABLES[run.table].experiment
    family = next((name for name, known in FAMILIES.items() if experiment in known), "")
    peak = PEAKS_MIB.get(family, {}).get(run.scale)
    return DEFAULT_MIB if peak is None else _STEP_MIB * math.ceil(MARGIN * peak / _STEP_MIB)


def key_of(run: Run) -> RunKey:
    """Return the key of a run in the records of submitted jobs."""
    return run.table, run.folder_name, run.name


def name_of(run: Run, suffix: str = "") -> str:
    """Return the name of a run's job."""
    return "-".join(filter(None, (run.table, run.folder_name, run.name, suffix)))


def script(*runs: Run, has_cells: bool = True) -> list[str]:
    """Return the command for runs of a table; without `has_cells`, for all runs of their rows."""
    table, scale = runs[0].table, runs[0].scale
    own = (sys.executable, "-m", "fairseq_plugins", "table", table)
    words = [f"scripts/{table}.sh"] if IS_CHECKOUT else [*own]
    words += ["--scale", scale, "--rows", joined(run.row for run in runs)]
    if has_cells:
        words += ["--attention", joined(run.attention for run in runs)]
        words += ["--seeds", joined(str(run.seed) for run in runs)]
    return words


def joined(words: Iterable[str]) -> str:
    """Join words as an option takes them, each once."""
    return ",".join(dict.fromkeys(words))


def jobs_of(
    planned: Sequence[PlannedRun],
    options: Sequence[str] = (),
    again: str = "",
    *,
    is_copied: bool = False,
) -> list[Job]:
    """Return the job of runs side by side, or two of a run whose evaluation leaves GPUs idle.

    again: `--force` or `--missing-checkpoints` to train runs that have a result; empty for others.
    is_copied: whether it copies the result of the same run in another table.
    """
    runs, gpus, count = tuple(one.run for one in planned), planned[0].devices.gpus, len(planned)
    words = (
        *script(*runs),
        *(("--runs", joined(run.name for run in runs)) if count > 1 else ()),
        *("--gpus", str(gpus)),
        *(("--jobs", str(count)) if count > 1 else ()),
        *planned[0].options,
        *options,
        "--srun",
        *filter(None, [again]),
    )
    name = name_of(runs[0], f"and-{count - 1}-more" if count > 1 else "")
    job = Job(name, runs[0].folder.parent, words, gpus * count, runs)
    if is_copied:
        return [replace(job, words=(*words, "--stage", "take"), gpus=0)]
    if again or count > 1 or not _evaluates_apart(planned[0]):
        return [job]
    training = replace(job, words=(*words, "--stage", "train"))
    measuring = replace(
        job,
        name=name_of(runs[0], EVALUATE),
        words=(*words, "--stage", "evaluate"),
        gpus=1,
        after=(name,),
    )
    return [training, measuring]


def _evaluates_apart(planned: PlannedRun) -> bool:
    """Return whether a run on several GPUs has one training, evaluated by commands on one GPU."""
    if planned.devices.gpus < 2 or len(planned.trainings) != 1:
        return False
    return bool(planned.steps(planned.final))
