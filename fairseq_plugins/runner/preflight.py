"""Checks before any work starts: data, GPUs, disk space and `--jobs`."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from fairseq_plugins.common.root import root_folder
from fairseq_plugins.experiments.devices import GPUS_PER_NODE, Devices
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.records import results
from fairseq_plugins.runner.cost_estimates import cost_of
from fairseq_plugins.runner.journal import retention
from fairseq_plugins.runner.run_options import Retention
from fairseq_plugins.runner.worker_pool import gpu_mismatch, usable_threads

_PROBE_BYTES = 2**20  # more than the results of a call


def check_ready(
    root: Path, planned: Sequence[PlannedRun], *, jobs: int = 1, keep: Retention | None = None
) -> None:
    """Check that runs have data, GPUs, disk space and folders that can be written to.

    jobs: runs at once in this process, 0 if others train them. Raises ValueError with the reason.
    """
    for one in planned:
        for missing in one.missing_data(root):
            raise ValueError(
                f"the data folder {missing.folder} lacks {', '.join(missing.files)}; "
                f"{' and '.join(missing.prepare)} makes it."
            )
        results.check(results.DataDescription, one.describe_data(root))
    _check_pretraining_data(root, planned)
    for folder in {f.parent for p in planned for f in (p.run.result, p.run.folder)}:
        _check_writable(root, folder)
    gpus = max((p.devices.gpus for p in planned if not p.devices.srun), default=0)
    if jobs:
        check_gpus(jobs, gpus, torch.cuda.device_count())
        check_room(root, planned, jobs, keep)


def default_jobs(planned: Sequence[PlannedRun], devices: Devices) -> int:
    """Return how many runs go side by side: on a CPU one for each thread, else one.

    Models that are trained on a CPU are too small to keep more than one thread busy.
    """
    if devices.gpus or devices.srun:
        return 1
    return max(1, min(len(planned), usable_threads()))


def _check_writable(root: Path, folder: Path) -> None:
    """Write a temporary file (ValueError: naming the folder that cannot be written to)."""
    try:
        (root / folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise ValueError(f"{folder} cannot be written to ({error.strerror}).") from None


def _check_pretraining_data(root: Path, planned: Sequence[PlannedRun]) -> None:
    """Compare the dictionaries of fine-tuning data with those of the pre-trained models."""
    pairs = {
        (training.data, (one.pretraining or one).data[0]): one.experiment
        for one in planned
        for training in one.trainings
    }
    for (data, before), experiment in pairs.items():
        experiment.check_data(root / data, root / before)


def check_gpus(jobs: int, gpus: int, available: int) -> None:
    """Check that PyTorch finds the GPUs (ValueError); runs of one GPU each may share some."""
    if jobs * gpus <= available or (gpus == 1 and available):
        return
    if 1 in (jobs, gpus):
        raise ValueError(
            f"`--gpus` must be at most the {available} that PyTorch finds here, "
            f"but is {gpus} instead; scales toy and mini train on a CPU (--gpus 0)."
        )
    raise ValueError(
        f"`--jobs` times `--gpus` must be at most the {available} GPUs that PyTorch finds here, "
        f"but is {jobs} x {gpus} = {jobs * gpus} instead."
    )


def check_node(gpus: int, available: int, *, only_measures: bool) -> None:
    """Check that this node has the GPUs that its Slurm job was submitted for (ValueError).

    gpus: of the run, on all nodes. available: how many PyTorch finds here. only_measures: whether
    one GPU is enough, if Slurm allocated any.
    """
    expected = min(gpus, GPUS_PER_NODE)
    if only_measures:
        expected = min(1, gpus, int(os.environ.get("SLURM_GPUS_ON_NODE", 0)))
    if available < expected or (available > expected > 1):
        raise ValueError(gpu_mismatch(expected, available))


def check_room(
    root: Path, planned: Sequence[PlannedRun], jobs: int, keep: Retention | None = None
) -> None:
    """Check that the disk has room for the checkpoints of runs, `jobs` of them at once.

    Raises ValueError: naming the runs, the space that they need and the free space.
    """
    kept = {one.run: retention(root / one.run.folder, keep) for one in planned}
    peaks = ((cost_of(root, one, kept[one.run]).peak, one.run.name) for one in planned)
    needs = sorted(peaks, reverse=True)
    needed = sum(size for size, _ in needs[:jobs])
    folder = root / root_folder("checkpoints")
    free = shutil.disk_usage(folder if folder.is_dir() else root).free
    if needs and needed > free:
        raise ValueError(
            f"checkpoints must have room for {needed / 1e9:.1f} GB, by estimate, for "
            f"{', '.join(name for _, name in needs[:jobs])}, but {free / 1e9:.1f} GB are free."
        )
