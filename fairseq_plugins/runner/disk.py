"""Room for checkpoints: checked before a run starts, and given back when it is measured."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.root import place
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.runner.budget import cost_of
from fairseq_plugins.runner.keep import Keep, kept_names


def check_room(root: Path, planned: Sequence[PlannedRun], jobs: int, keep: Keep = "all") -> None:
    """Refuse to start runs whose checkpoints do not fit beside what is there.

    Args:
        root: the repository.
        planned: the runs that are to be made.
        jobs: of them at once.
        keep: what stays of those that are measured.

    Raises:
        ValueError: naming the run, what it takes and what is free.
    """
    costs = [(cost_of(root, one, keep).peak, one.run.name) for one in planned]
    needs = sorted(costs, reverse=True)
    needed = sum(size for size, _ in needs[:jobs])
    folder = root / place("checkpoints")
    free = shutil.disk_usage(folder if folder.is_dir() else root).free
    if needs and needed > free:
        raise ValueError(
            f"checkpoints must have room for {needed / 1e9:.1f} GB, by estimate, for "
            f"{', '.join(name for _, name in needs[:jobs])}, but {free / 1e9:.1f} GB are free."
        )


def tidy(root: Path, planned: PlannedRun, keep: Keep) -> None:
    """Remove the checkpoints of a run that is measured, but for those that are to stay."""
    for training in planned.trainings if keep != "all" else ():
        for path in (root / training.folder).glob("*.pt"):
            if path.name not in kept_names(training, keep):
                path.unlink()
