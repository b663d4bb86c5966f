"""Options of the commands that train and measure runs."""

from dataclasses import dataclass
from typing import Literal

# Which checkpoints stay when a run is measured. `best`: the measured one. `last`: also the one that
# training would go on from. `tuned`: like `best`, and also the measured one of every fine-tuning,
# which is otherwise deleted.
Retention = Literal["last", "best", "all", "tuned"]
# What a process does of each run. A job on many GPUs trains, and another one on one GPU evaluates;
# `take` copies the result of the same run from another table.
Stage = Literal["all", "train", "evaluate", "take"]


@dataclass(frozen=True)
class RunOptions:
    """Options of a command that trains and measures runs.

    Attributes:
        force: train again runs that have a result.
        missing_checkpoints: train again runs without a checkpoint; their results stay.
        jobs: runs side by side; in a submission, runs in one Slurm job.
        max_running: Slurm jobs of a submission that train at once, 0 for no limit.
        keep: which checkpoints stay.
        stage: what this process does of each run.
        job: number of the Slurm job that this process is, None outside Slurm.
    """

    force: bool = False
    missing_checkpoints: bool = False
    jobs: int = 1
    max_running: int = 0
    keep: Retention = "all"
    stage: Stage = "all"
    job: int | None = None

    @property
    def job_words(self) -> tuple[str, ...]:
        """Options that a submission hands to every job."""
        return ("--keep", self.keep) if self.keep != "all" else ()
