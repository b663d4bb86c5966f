"""Runs as Slurm jobs: the command that submits one, and what may be submitted."""

import os
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.reproduce.experiments.devices import GPUS_PER_NODE
from fairseq_plugins.reproduce.experiments.planned import PlannedRun
from fairseq_plugins.reproduce.record.runs import Run
from fairseq_plugins.reproduce.run.runner import is_pretrained, is_recorded

_CPUS_PER_GPU = 4


def sbatch_command(planned: PlannedRun, *, force: bool = False) -> list[str]:
    """The Slurm job of one run: this runner on the first node, its training under srun."""
    run, gpus = planned.run, planned.devices.gpus
    nodes = max(1, gpus // GPUS_PER_NODE)
    inner = [
        f"scripts/{run.table}.sh",
        *("--scale", run.scale),
        *("--rows", run.row),
        *("--attention", run.attention),
        *("--seeds", str(run.seed)),
        *("--gpus", str(gpus)),
        *planned.options,
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


def submit(root: Path, planned: Sequence[PlannedRun], *, force: bool) -> int:
    """Submit a Slurm job for every run that is not done; returns the exit status."""

    def is_done(one: PlannedRun) -> bool:
        return not force and is_recorded(root, one)

    first = _shared_pretraining(root, [one for one in planned if not is_done(one)])
    if first:
        print(
            f"Several of these jobs start from {first.table}'s {first.name}, which is not trained "
            f"yet; make it first: scripts/{first.table}.sh --scale {first.scale} "
            f"--rows {first.row} --attention {first.attention} --slurm"
        )
        return 1
    for one in planned:
        if is_done(one):
            print(f"{one.run.name}: done already")
            continue
        (root / one.run.folder).parent.mkdir(parents=True, exist_ok=True)
        command = sbatch_command(one, force=force)
        try:
            status = subprocess.run(command, cwd=root, check=False).returncode
        except FileNotFoundError:
            print("sbatch was not found: --slurm works where jobs are submitted from")
            return 1
        if status:
            print(f"{one.run.name}: sbatch ended with status {status}")
            return 1
    print("When the jobs have ended, the same command with --render shows the whole table.")
    return 0


def _shared_pretraining(root: Path, planned: Sequence[PlannedRun]) -> Run | None:
    """A run that is not trained yet and that several start from, the first of its chain.

    Jobs would wait for one another with their GPUs taken.
    """
    found = [before for one in planned for before in one.before]
    count = Counter(before.run for before in found)
    shared = {before.run: before for before in found if count[before.run] > 1}
    return next((run for run, one in shared.items() if not is_pretrained(root, one)), None)
