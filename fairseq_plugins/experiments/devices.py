"""Devices of a run, and how its total batch is spread over them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.records.recipe import hydra_word, total_batch

GPUS_PER_NODE = 8
# Below the ports that Linux assigns, from 32768 on.
_FIRST_PORT, _PORTS = 10_000, 20_000


@dataclass(frozen=True)
class Devices:
    """The devices of one run.

    gpus: number of GPUs, 0 for a process on the CPU. srun: whether commands start with srun, in a
    Slurm job. job: number of the Slurm job, 0 before it has one.
    """

    gpus: int
    srun: bool = False
    job: int = 0


def spread(recorded: Mapping[str, Any], devices: int) -> dict[str, Any]:
    """Return the settings that spread the total batch of a configuration over devices.

    Each device has at most the configuration's own batch at once.

    Raises ValueError: a batch size or update frequency is invalid, or the devices cannot share the
    total batch equally.
    """
    per_device = recorded["dataset"].get("batch_size")
    steps = recorded["optimization"]["update_freq"]
    if per_device is not None and per_device < 1:
        raise ValueError(f"`dataset.batch_size` must be at least 1, but is {per_device} instead.")
    if len(steps) != 1 or steps[0] < 1:
        raise ValueError(
            "`optimization.update_freq` must be one number of at least 1, the same in all epochs, "
            f"but is {list(steps)} instead."
        )
    if per_device is None:  # batches are counted in tokens
        total, unit = int(steps[0]), "batches per update"
    else:
        total, unit = total_batch(recorded), "sequences"
    if total % devices:
        raise ValueError(
            f"`--gpus` must divide the total batch of {total} {unit}, but is {devices} instead."
        )
    share, batch_size, settings = total // devices, 1, {}
    if per_device is not None:
        batch_size = max(size for size in range(1, int(per_device) + 1) if share % size == 0)
        settings["dataset.batch_size"] = batch_size
    return {
        **settings,
        "optimization.update_freq": [share // batch_size],
        "distributed_training.distributed_world_size": devices,
    }


def run_group(devices: Devices) -> str:
    """Return the Hydra override of the group `run`: on one machine, on a node, or under Slurm."""
    is_node = devices.gpus == GPUS_PER_NODE
    return f"run={'slurm' if devices.srun else 'node8' if is_node else 'local'}"


def placement(folder: Path, devices: Devices, layout: Mapping[str, Any]) -> list[str]:
    """Return the Hydra overrides of devices and folder.

    Slurm may put two jobs on a node, so each job has a port of its own. layout: as of `spread`.
    """
    port = _FIRST_PORT + devices.job % _PORTS
    has_port = devices.srun and devices.job
    return [
        *([f"distributed_training.distributed_port={port}"] if has_port else []),
        f"common.cpu={'false' if devices.gpus else 'true'}",
        *(f"{key}={value}" for key, value in layout.items()),
        f"checkpoint.save_dir={hydra_word(folder.as_posix())}",
    ]
