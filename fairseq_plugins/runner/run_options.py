"""Options of commands that train and measure runs."""

from dataclasses import dataclass
from typing import Literal

# Checkpoints that stay when a run has been measured. `best`: the measured one. `last`: also the one
# that training would resume from. `tuned`: like `best`, and the measured one of every fine-tuning,
# which is otherwise deleted.
Retention = Literal["last", "best", "all", "tuned"]
# The part of each run that a process does. A job on many GPUs trains, and another one on one GPU
# evaluates; `take` copies the result of the same run from another table.
Stage = Literal["all", "train", "evaluate", "take"]


@dataclass(frozen=True)
class RunOptions:
    """Options of a command that trains and measures runs."""

    force: bool = False  # train again runs that have a result
    missing_checkpoints: bool = False  # train again runs without a checkpoint; their results stay
    jobs: int = 1  # runs side by side; in a submission, runs in one Slurm job
    max_running: int = 0  # Slurm jobs of a submission that train at once, 0 for no limit
    keep: Retention | None = None  # None for the checkpoints that the run was begun with
    stage: Stage = "all"  # the part of each run that this process does
    job: int | None = None  # number of the Slurm job that this process is, None outside Slurm
