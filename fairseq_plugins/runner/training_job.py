"""fairseq-hydra-train as jobs run it, `python -m fairseq_plugins.runner.training_job`.

It differs from fairseq's own in what a job needs that may end at any moment:

- it saves at least every `SAVE_SECONDS` of training, beside fairseq's own moments;
- where a file `STOP` appears in its folder of checkpoints, it saves within about a second and ends
  with status 0;
- it goes on with the next batch on another number of GPUs too;
- it refuses to start where the GPUs that it was given are not there.

fairseq's `stop_time_hours` and `save_interval_updates` would validate at every such moment, which
adds points to a curve and may choose another best checkpoint: results would depend on when a job
was stopped. Here `checkpoint_last.pt` is written by fairseq's own function, and no more is done.
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
from fairseq.trainer import Trainer
from fairseq_cli import hydra_train
from fairseq_cli import train as fairseq_train
from hydra._internal.utils import get_args
from omegaconf import DictConfig

from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.runner.interruption import STOP
from fairseq_plugins.runner.worker_pool import gpu_mismatch

SAVE_SECONDS = 45.0  # what a dead node loses, with an update and the time of writing: under 60 s
_LOOK_SECONDS = 1.0  # between two looks for the file
_PROCESSES = "data_parallel_world_size"  # the key in checkpoints for how many shared the batches


def with_names(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """The same function with other values for names of its module, which itself stays as it is."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)


class SavingTrainer(Trainer):
    """fairseq's trainer, which also saves between fairseq's own moments."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batches: Any = None
        self._looked = self._saved = 0.0

    def get_train_iterator(self, *arguments: Any, **options: Any) -> Any:
        self._batches = super().get_train_iterator(*arguments, **options)
        if not self._saved:
            self._looked = self._saved = self.cumulative_training_time()
        return self._batches

    def consolidate_optimizer(self) -> None:
        """fairseq calls it in every process whenever it saves."""
        super().consolidate_optimizer()
        self._saved = self.cumulative_training_time()

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> None:
        super().save_checkpoint(
            filename, {**extra_state, _PROCESSES: self.data_parallel_world_size}
        )

    def load_checkpoint(self, *arguments: Any, **options: Any) -> dict[str, Any] | None:
        """fairseq's, where the place in the epoch counts the batches of a process of now.

        fairseq saves and reads it as those of each process, so that half as many processes would
        go on in the middle of what has been read.
        """
        extra_state: dict[str, Any] | None = super().load_checkpoint(*arguments, **options)
        if extra_state is not None and "train_iterator" in extra_state:
            now = self.data_parallel_world_size
            place = extra_state["train_iterator"]
            read = place["iterations_in_epoch"] * extra_state.get(_PROCESSES, now)
            place["iterations_in_epoch"] = read // now
        return extra_state

    def train_step(self, samples: Any, raise_oom: bool = False) -> Any:
        """An update; a save after it, and the end, where it is time.

        Raises:
            SystemExit: it was asked to stop, and has saved.
        """
        output = super().train_step(samples, raise_oom)
        # The mean over all processes, so that they agree.
        now = self.cumulative_training_time()
        if now - self._looked < _LOOK_SECONDS or not self._is_between_fairseqs_moments():
            return output
        self._looked = now
        is_to_stop = self._is_asked_to_stop()
        if is_to_stop or now - self._saved >= SAVE_SECONDS:
            checkpoint_utils.save_checkpoint(self.cfg.checkpoint, self, self._batches, None)
        if is_to_stop:
            if torch.distributed.is_initialized():
                torch.distributed.barrier()  # until it is written: who ends first ends the others
            raise SystemExit(0)
        return output

    def _is_between_fairseqs_moments(self) -> bool:
        """Whether fairseq itself logs, validates and saves nothing after this update.

        A run that goes on from a checkpoint goes on after these.
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
        """As the first process sees it, on whose node the file is written; the same in all."""
        path = Path(self.cfg.checkpoint.save_dir) / STOP
        is_asked = self.is_data_parallel_master and path.exists()
        if not torch.distributed.is_initialized():
            return is_asked
        found = torch.tensor([int(is_asked)], device=self.device)
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return bool(found.item())


def train(cfg: DictConfig) -> None:
    """fairseq's training of one process with that trainer."""
    prepare_cpu()
    with_names(fairseq_train.main, Trainer=SavingTrainer)(cfg)


def check_gpus(world_size: int, nodes: int, visible: int) -> None:
    """Refuse to train on other GPUs than those that were asked for.

    fairseq would take as many as it sees, with another total batch, or the CPU where it sees none.

    Raises:
        ValueError: naming the node, what it was to have and what it has.
    """
    asked = world_size // nodes
    if visible == asked or (world_size == 1 and visible > 1):
        return
    raise ValueError(gpu_mismatch(asked, visible))


def run(cfg: DictConfig) -> float:
    """fairseq-hydra-train with a composed configuration; the best validation value."""
    if not cfg.common.cpu:
        world, nodes = cfg.distributed_training.distributed_world_size, _nodes()
        try:
            check_gpus(int(world), nodes, torch.cuda.device_count())
        except ValueError as error:
            sys.exit(str(error))  # which Hydra would show with its traceback
    best: float = with_names(hydra_train._hydra_main, pre_main=train)(cfg)
    return best


def _nodes() -> int:
    """Of the step that this process is a task of, 1 outside Slurm."""
    return int(os.environ.get("SLURM_NNODES", 1))


def main() -> None:
    """Compose the configuration of this command line and train."""
    hydra_init(get_args().config_name or "config")
    folder = Path(fairseq.__file__).parent / "config"
    hydra.main(config_path=str(folder), config_name="config", version_base="1.1")(run)()


if __name__ == "__main__":
    main()
