"""The commands of a run, as lists of words that a reader can type in the repository's root."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.reproduce.record.recipe import Layout

GPUS_PER_NODE = 8
SRUN = ("srun", "--ntasks-per-node=1")  # one task per node; fairseq starts a process per GPU

_CPUS_PER_GPU = 4
# Below those that Linux hands out by itself, from 32768 on.
_FIRST_PORT, _PORTS = 10_000, 20_000

# fairseq's commands as modules of this interpreter, so that no PATH has to be right.
_MODULES = {
    "fairseq-hydra-train": ("-m", "fairseq_cli.hydra_train"),
    "fairseq-eval-lm": ("-m", "fairseq_cli.eval_lm"),
    "fairseq-generate": ("-m", "fairseq_cli.generate"),
    "python": (),
}


@dataclass(frozen=True)
class Run:
    """One cell of a table: a row under an attention, from one seed, at a scale."""

    table: str
    scale: str
    row: str
    attention: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row}-{self.attention}-s{self.seed}"

    @property
    def result(self) -> Path:
        """Its JSON, relative to the repository."""
        return Path("results", self.table, self.scale, f"{self.name}.json")

    @property
    def folder(self) -> Path:
        """Its checkpoints and logs, relative to the repository."""
        return Path("checkpoints", self.table, self.scale, self.name)


def selection(
    run: Run, *, has_file: bool, scale_group: str, attention: Mapping[str, str]
) -> list[str]:
    """The Hydra overrides that say what is trained, without where.

    has_file: whether the row has a file in configs/model; one without is Base with the encoding
    of that name. attention: the model's options that the run's attention sets.
    """
    row = [f"model={run.row}"]
    return [
        *(row if has_file else ["model=base", f"model.position_encoding={run.row}"]),
        f"{scale_group}={run.scale}",
        *(f"model.{option}={word}" for option, word in attention.items()),
        f"common.seed={run.seed}",
    ]


def placement(folder: Path, gpus: int, layout: Layout, *, srun: bool, job: int = 0) -> list[str]:
    """The Hydra overrides that say where it is trained; gpus 0 is one process on the CPU.

    job: Slurm's number of it. Slurm may put two on a node, which must not meet at one port.
    """
    where = "slurm" if srun else "node8" if gpus == GPUS_PER_NODE else "local"
    port = _FIRST_PORT + job % _PORTS
    return [
        f"run={where}",
        *([f"distributed_training.distributed_port={port}"] if srun and job else []),
        f"common.cpu={'false' if gpus else 'true'}",
        *layout.overrides,
        f"checkpoint.save_dir={folder.as_posix()}",
    ]


def train_command(recipe: str, overrides: Sequence[str], *, srun: bool = False) -> list[str]:
    """fairseq-hydra-train with Hydra's overrides."""
    return [
        *(SRUN if srun else ()),
        "fairseq-hydra-train",
        "--config-dir",
        "configs",
        "--config-name",
        recipe,
        *overrides,
    ]


def sbatch_command(run: Run, gpus: int, *, force: bool = False) -> list[str]:
    """The Slurm job of one run: this runner on the first node, its training under srun."""
    nodes = max(1, gpus // GPUS_PER_NODE)
    inner = [
        f"scripts/{run.table}.sh",
        *("--scale", run.scale),
        *("--rows", run.row),
        *("--attention", run.attention),
        *("--seeds", str(run.seed)),
        *("--gpus", str(gpus)),
        "--srun",
        *(["--force"] if force else []),
    ]
    return [
        "sbatch",
        f"--job-name={run.table}-{run.scale}-{run.name}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={min(gpus, GPUS_PER_NODE)}",
        # A trainer and its data workers; without it Slurm gives one core to all of a node. sbatch
        # itself reads the variable, which a word would override.
        *([] if "SBATCH_CPUS_PER_GPU" in os.environ else [f"--cpus-per-gpu={_CPUS_PER_GPU}"]),
        f"--output={(run.folder.with_name(f'{run.name}.slurm-%j.log')).as_posix()}",
        f"--wrap={shlex.join(inner)}",
    ]


def executable(command: Sequence[str]) -> list[str]:
    """The command with this interpreter in place of fairseq's command names."""
    words = list(command)
    start = len(SRUN) if tuple(words[: len(SRUN)]) == SRUN else 0
    return [
        *words[:start],
        sys.executable,
        *_MODULES[words[start]],
        *words[start + 1 :],
    ]
