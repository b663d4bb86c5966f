"""Trainings of scale paper for a few updates on a CPU: real sizes and commands, generated text."""

import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.checkpoints import LAST, read_updates
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.root import configs_folder, root_folder
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.training import train_command
from fairseq_plugins.records.recipe import hydra_word
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.commands import executable, run_command
from fairseq_plugins.runner.cost_estimates import vocabulary_of
from fairseq_plugins.runner.launcher import Launcher, ProcessLauncher
from fairseq_plugins.runner.rehearsal import GIB, count_parameters, memory_of

UPDATES = 2
_TEXT = ("--train-sentences", "600", "--valid-sentences", "20", "--test-sentences", "20")
_PAIRS = ("--train-pairs", "600", "--valid-pairs", "20", "--test-pairs", "20")
# fairseq's own symbols, which are in no dict.txt.
_SPECIAL = 4


@dataclass(frozen=True)
class Kind:
    """A kind of model: the table whose recipe is rehearsed, and the words that generate its data.

    settings: overrides that the generated data need. more_symbols: that its task adds to the
    dictionary.
    """

    table: str
    prepare: tuple[str, ...]
    settings: tuple[str, ...] = ()
    more_symbols: int = 0


KINDS: Mapping[str, Kind] = {
    "lm": Kind("table2", ("fairseq_plugins.data.prepare", "toy", *_TEXT)),
    "mlm": Kind(
        "table8",
        ("fairseq_plugins.data.prepare_mlm", "toy", "--merges", "60", *_TEXT),
        more_symbols=1,
    ),
    "mt": Kind(
        "table4",
        ("fairseq_plugins.translation.prepare", "toy", "--merges", "60", *_PAIRS),
        ("task.source_lang=qaa", "task.target_lang=qab"),
    ),
}
# One sample a step, in full precision, since a CPU has no other.
_ON_A_CPU = (
    "common.cpu=true",
    "common.fp16=false",
    "dataset.batch_size=1",
    "dataset.num_workers=0",
    "optimization.update_freq=[1]",
    "checkpoint.save_interval_updates=0",
)
_ALONE = ("distributed_training.distributed_world_size=1",)
_PROCESSES = 2
# All of them are needed: without the first each process trains alone.
_TOGETHER = (
    f"distributed_training.distributed_world_size={_PROCESSES}",
    "distributed_training.distributed_backend=gloo",
    "distributed_training.ddp_backend=legacy_ddp",
    "distributed_training.distributed_init_method=env://",
    "distributed_training.distributed_no_spawn=true",
    "distributed_training.distributed_rank=${oc.env:RANK}",
)
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_PROCESSES}")


def kinds(text: str) -> list[str]:
    """Parse kinds joined by commas (OptionError: an unknown kind)."""
    names = [name for name in text.split(",") if name]
    if unknown := {*names} - {*KINDS}:
        raise OptionError(f"--train must be among {', '.join(KINDS)}, but has {min(unknown)}")
    return names


def train(
    root: Path,
    name: str,
    row: str = "base",
    launcher: Launcher | None = None,
    scale: str = "paper",
) -> str:
    """Train two updates, a third one in two processes over gloo, and evaluate the checkpoint.

    name: key of `KINDS`. Returns what it took. Raises WorkError with the end of the log if a
    command failed.
    """
    kind, launch = KINDS[name], launcher or ProcessLauncher(root)
    planned = plan_run(
        configs_folder(root), Run(kind.table, scale, row, "vanilla", 1), Devices(gpus=1)
    )
    vocabulary = vocabulary_of(root, planned.final.data)
    data = root_folder("data") / "rehearsal" / name
    folder = root_folder("checkpoints") / "rehearsal" / name
    training = replace(planned.final, folder=folder, data_elsewhere=data)
    for path in (data, folder):
        shutil.rmtree(root / path, ignore_errors=True)
    (root / folder).mkdir(parents=True)
    log, checkpoint = root / folder / "train.log", folder / LAST
    run_command(launch, ["python", "-m", *kind.prepare, "--output", data.as_posix()], log)
    for dictionary in (root / data).glob("dict*.txt"):
        fill_dictionary(dictionary, vocabulary - _SPECIAL - kind.more_symbols)

    def update(last: int, how: Sequence[str], start: Sequence[str] = ()) -> None:
        overrides = (
            *training.overrides,
            *_ON_A_CPU,
            *kind.settings,
            *how,
            f"task.data={hydra_word(data.as_posix())}",
            f"checkpoint.save_dir={hydra_word(folder.as_posix())}",
            f"optimization.max_update={last}",
        )
        _, *words = executable(train_command(training.variant.recipe, overrides))
        run_command(launch, ["python", *start, *words], log)
        found = read_updates(root / checkpoint)
        if found != last:
            raise WorkError(f"{checkpoint} must be of {last} updates, but is of {found}")

    update(UPDATES, _ALONE)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    size = (root / checkpoint).stat().st_size
    update(UPDATES + 1, _TOGETHER, _TORCHRUN)
    planned.experiment.measure(training, root / folder)  # ValueError: the log has no number
    for step in planned.experiment.steps(training, checkpoint, planned.run, 0):
        run_command(launch, step.command, root / folder / step.log)
        step.read(root / folder / step.log)
    estimate = memory_of(
        _in_full_precision(training.config), count_parameters(training, vocabulary), vocabulary
    )
    shutil.rmtree(root / folder)
    return (
        f"{name}: {UPDATES} updates of {kind.table}'s recipe ({row}) with at most "
        f"{memory / GIB:.1f} GiB of memory ({estimate / GIB:.1f} GiB estimated, without Python "
        f"and PyTorch themselves), a checkpoint of {size / 1e9:.2f} GB, another update from it in "
        f"{_PROCESSES} processes, and its evaluation"
    )


def _in_full_precision(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with what `_ON_A_CPU` sets, as far as memory depends on it."""
    return {
        **config,
        "common": {**config["common"], "fp16": False, "bf16": False},
        "dataset": {**config["dataset"], "batch_size": 1, "max_tokens": None},
    }


def fill_dictionary(path: Path, entries: int) -> None:
    """Add entries that no text has to a dictionary, until it has so many."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines += [f"madeupword{number:06} 0" for number in range(entries - len(lines))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
