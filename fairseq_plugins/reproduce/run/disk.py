"""Room for checkpoints: checked before a run starts, and given back when it is measured."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fairseq_plugins.common.checkpoints import LAST
from fairseq_plugins.common.root import place
from fairseq_plugins.reproduce.experiments.planned import PlannedRun
from fairseq_plugins.reproduce.run.budget import cost_of

Keep = Literal["last", "best", "all", "tuned"]


def check_room(root: Path, planned: Sequence[PlannedRun], jobs: int) -> None:
    """Refuse to start runs whose checkpoints do not fit beside what is there.

    Args:
        root: the repository.
        planned: the runs that are to be made.
        jobs: of them at once.

    Raises:
        ValueError: naming the run, what it takes and what is free.
    """
    needs = sorted(((cost_of(root, one).peak, one.run.name) for one in planned), reverse=True)
    needed = sum(size for size, _ in needs[:jobs])
    folder = root / place("checkpoints")
    free = shutil.disk_usage(folder if folder.is_dir() else root).free
    if needs and needed > free:
        raise ValueError(
            f"checkpoints must have room for {needed / 1e9:.1f} GB, by estimate, for "
            f"{', '.join(name for _, name in needs[:jobs])}, but {free / 1e9:.1f} GB are free."
        )


def tidy(root: Path, planned: PlannedRun, keep: Keep) -> None:
    """Remove checkpoints of a run that is measured.

    The one that was measured always stays, since other tables may start from it.

    Args:
        root: the repository.
        planned: the run.
        keep: `all`; `last`, the one that training would go on from beside the measured one;
            `best`, the measured one alone; or `tuned`, the measured one of every fine-tuning, too,
            which otherwise goes as soon as it is measured.
    """
    for training in planned.trainings if keep != "all" else ():
        kept = {training.evaluated, *({LAST} if keep == "last" else ())}
        for path in (root / training.folder).glob("*.pt"):
            if path.name not in kept:
                path.unlink()
