"""fairseq-hydra-train for Slurm jobs, `python -m fairseq_plugins.runner.training_job`.

Since a job may end at any moment, it differs from fairseq's own:

- it saves at least every `SAVE_SECONDS` of training, in addition to fairseq's checkpoints;
- if a file `STOP` appears in its folder of checkpoints, it saves within about a second and exits
  with status 0;
- it resumes with the next batch also on another number of GPUs;
- it exits at once without the GPUs that it was given.

fairseq's `stop_time_hours` and `save_interval_updates` would validate whenever they save, which
adds points to a curve and may choose another best checkpoint: results would depend on when a job
was stopped. Here fairseq's own function writes `checkpoint_last.pt`, and nothing else happens.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import fairseq
import hydra
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.initialize import hydra_init
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from fairseq_cli import hydra_train
from fairseq_cli import train as fairseq_train
from hydra._internal.utils import get_args
from omegaconf import DictConfig

from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.exit_status import skip_last_collection
from fairseq_plugins.runner.interruption import STOP
from fairseq_plugins.runner.worker_pool import gpu_mismatch

SAVE_SECONDS = 45.0  # a node failure loses less than 60 s, with an update and the time of saving
_CHECK_SECONDS = 1.0  # between checks for the file
_UNLOGGED = {"train_inner"}  # fairseq's meters of the updates since it last logged
_PROCESSES = "data_parallel_world_size"  # key in checkpoints


def with_names(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """Return a copy of a function with other values for globals of its module."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)


class SavingTrainer(Trainer):
    """fairseq's trainer, which also saves between fairseq's own checkpoints."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batches: Any = None
        self._checked = self._saved = 0.0

    def get_train_iterator(self, *arguments: Any, **options: Any) -> Any:
        self._batches = super().get_train_iterator(*arguments, **options)
        if not self._saved:
            self._checked = self._saved = self.cumulative_training_time()
        return self._batches

    def consolidate_optimizer(self) -> None:
        """Remember when fairseq saves; it calls this in every process."""
        super().consolidate_optimizer()
        self._saved = self.cumulative_training_time()

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> None:
        super().save_checkpoint(
            filename, {**extra_state, _PROCESSES: self.data_parallel_world_size}
        )

    def load_checkpoint(self, *arguments: Any, **options: Any) -> dict[str, Any] | None:
        """Load a checkpoint, with its position in the epoch for the present number of processes.

        fairseq counts the batches of each process, so that half as many processes would resume at
        half of the position. After the end of an epoch it also forgets the losses that it has not
        logged yet, so that the next point of the curve would be the mean of fewer updates.
        """
        extra_state: dict[str, Any] | None = super().load_checkpoint(*arguments, **options)
        if extra_state is not None and not options.get("reset_meters"):
            logged = extra_state.get("metrics", {})
            metrics.load_state_dict({key: logged[key] for key in _UNLOGGED & logged.keys()})
        if extra_state is not None and "train_iterator" in extra_state:
            now = self.data_parallel_world_size
            iterator = extra_state["train_iterator"]
            read = iterator["iterations_in_epoch"] * extra_state.get(_PROCESSES, now)
            iterator["iterations_in_epoch"] = read // now
        return extra_state

    def train_step(self, samples: Any, raise_oom: bool = False) -> Any:
        """Make an update, and then save if a stop is requested or `SAVE_SECONDS` are over.

        Raises SystemExit: a stop was requested, and the training has saved.
        """
        output = super().train_step(samples, raise_oom)
        # This time is the mean over all processes, so that they agree.
        now = self.cumulative_training_time()
        if now - self._checked < _CHECK_SECONDS or not self._is_idle_in_fairseq():
            return output
        self._checked = now
        is_to_stop = self._is_asked_to_stop()
        if is_to_stop or now - self._saved >= SAVE_SECONDS:
            checkpoint_utils.save_checkpoint(self.cfg.checkpoint, self, self._batches, None)
        if is_to_stop:
            if torch.distributed.is_initialized():
                torch.distributed.barrier()  # the first process to end would end the one that saves
            raise SystemExit(0)
        return output

    def _is_idle_in_fairseq(self) -> bool:
        """Return whether fairseq itself neither logs, validates nor saves after this update.

        A run that resumes from a checkpoint would skip these.
        """
        updates, cfg = self.get_num_updates(), self.cfg
        last = cfg.optimization.max_update
        intervals = (
            cfg.checkpoint.save_interval_updates,
            cfg.dataset.validate_interval_updates,
            cfg.common.log_interval if cfg.common.log_interval > 1 else 0,
        )
        return (
            not self._batches.end_of_epoch()
            and not (last and updates >= last)
            and not any(interval > 0 and updates % interval == 0 for interval in intervals)
        )

    def _is_asked_to_stop(self) -> bool:
        """Return in all processes whether the first one, on whose node the file is, finds it."""
        path = Path(self.cfg.checkpoint.save_dir) / STOP
        is_asked = self.is_data_parallel_master and path.exists()
        if not torch.distributed.is_initialized():
            return is_asked
        found = torch.tensor([int(is_asked)], device=self.device)
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return bool(found.item())


def train(cfg: DictConfig) -> None:
    """Run fairseq's training of one process with `SavingTrainer`."""
    prepare_cpu()
    with_names(fairseq_train.main, Trainer=SavingTrainer)(cfg)


def check_gpus(world_size: int, nodes: int, visible: int) -> None:
    """Exit, without Hydra's traceback, if other GPUs are visible than requested.

    fairseq would use all visible GPUs, with another total batch, or the CPU if there are none.
    """
    asked = world_size // nodes
    if visible != asked and not (world_size == 1 and visible > 1):
        sys.exit(gpu_mismatch(asked, visible))


def run(cfg: DictConfig) -> float:
    """Run fairseq-hydra-train with a composed configuration; return the best validation value."""
    if not cfg.common.cpu:
        world_size = int(cfg.distributed_training.distributed_world_size)
        nodes = int(os.environ.get("SLURM_NNODES", 1))  # of this process's Slurm step
        check_gpus(world_size, nodes, torch.cuda.device_count())
    best: float = with_names(hydra_train._hydra_main, pre_main=train)(cfg)
    return best


def main() -> None:
    """Compose the configuration of this command line and train."""
    skip_last_collection()
    hydra_init(get_args().config_name or "config")
    folder = Path(fairseq.__file__).parent / "config"
    hydra.main(config_path=str(folder), config_name="config", version_base="1.1")(run)()


if __name__ == "__main__":
    main()
