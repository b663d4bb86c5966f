"""Trainings of scale paper for a few updates on a CPU: real size and commands, generated text."""

import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.checkpoints import LAST, read_updates
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.root import configs_folder, root_folder
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.training import train_command
from fairseq_plugins.records.recipe import hydra_word
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.commands import run_command
from fairseq_plugins.runner.cost_estimates import vocabulary_of
from fairseq_plugins.runner.launcher import Launcher, ProcessLauncher

UPDATES = 2
_SENTENCES = ("--train-sentences", "600", "--valid-sentences", "60", "--test-sentences", "60")
# fairseq's own symbols, which are in no dict.txt.
_SPECIAL = 4


@dataclass(frozen=True)
class Kind:
    """A kind of model: the table whose recipe is rehearsed, and the words that generate its data.

    more_symbols: that its task adds to the dictionary.
    """

    table: str
    prepare: tuple[str, ...]
    more_symbols: int = 0


KINDS: Mapping[str, Kind] = {
    "lm": Kind("table2", ("fairseq_plugins.data.prepare", "toy")),
    "mlm": Kind("table8", ("fairseq_plugins.data.prepare_mlm", "toy", "--merges", "60"), 1),
}
# One sample a step and one process, in full precision, since a CPU has no other.
_ON_A_CPU = (
    "common.cpu=true",
    "common.fp16=false",
    "dataset.batch_size=1",
    "dataset.num_workers=0",
    "dataset.disable_validation=true",
    "optimization.update_freq=[1]",
    "distributed_training.distributed_world_size=1",
    "checkpoint.save_interval_updates=0",
)


def kinds(text: str) -> list[str]:
    """Parse kinds joined by commas (OptionError: an unknown kind)."""
    names = [name for name in text.split(",") if name]
    if unknown := {*names} - {*KINDS}:
        raise OptionError(f"--train must be among {', '.join(KINDS)}, but has {min(unknown)}")
    return names


def train(root: Path, name: str, row: str = "base", launcher: Launcher | None = None) -> str:
    """Train two updates, save, and train a third one from the checkpoint; return what it took.

    name: key of `KINDS`. Raises WorkError with the end of the log if a command failed.
    """
    kind, launch = KINDS[name], launcher or ProcessLauncher(root)
    planned = plan_run(
        configs_folder(root), Run(kind.table, "paper", row, "vanilla", 1), Devices(gpus=1)
    )
    training = planned.final
    size = vocabulary_of(root, training.data)
    data = root_folder("data") / "rehearsal" / name
    folder = root_folder("checkpoints") / "rehearsal" / name
    for path in (data, folder):
        shutil.rmtree(root / path, ignore_errors=True)
    (root / folder).mkdir(parents=True)
    log = root / folder / "train.log"
    words = [*kind.prepare, "--output", data.as_posix(), *_SENTENCES]
    run_command(launch, ["python", "-m", *words], log)
    fill_dictionary(root / data / "dict.txt", size - _SPECIAL - kind.more_symbols)
    for updates in (UPDATES, UPDATES + 1):
        overrides = (
            *training.overrides,
            *_ON_A_CPU,
            f"task.data={hydra_word(data.as_posix())}",
            f"checkpoint.save_dir={hydra_word(folder.as_posix())}",
            f"optimization.max_update={updates}",
        )
        run_command(launch, train_command(training.variant.recipe, overrides), log)
        found = read_updates(root / folder / LAST)
        if found != updates:
            raise WorkError(f"{folder / LAST} must be of {updates} updates, but is of {found}")
    file = (root / folder / LAST).stat().st_size
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    shutil.rmtree(root / folder)
    return (
        f"{name}: {UPDATES} updates of {kind.table}'s recipe ({row}), a checkpoint of "
        f"{file / 1e9:.2f} GB and another update from it; at most {memory / 2**30:.1f} GiB of "
        "memory"
    )


def fill_dictionary(path: Path, entries: int) -> None:
    """Add entries that no text has to a dictionary, until it has so many."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines += [f"madeupword{number:06} 0" for number in range(entries - len(lines))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
