"""Trainings of scale paper for a few updates on a CPU, with the real sizes and commands."""

import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

from fairseq_plugins.common import memory
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.checkpoints import LAST, read_updates
from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.root import configs_folder, root_folder
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.experiments.training import train_command
from fairseq_plugins.records.recipe import hydra_word
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.cost_estimates import vocabulary_of
from fairseq_plugins.runner.launcher import Launcher, ProcessLauncher, executable, run_command
from fairseq_plugins.runner.rehearsal import GIB, count_parameters, memory_of

UPDATES = 2
MOST_PROCESSES, LEAST_PROCESSES = 8, 2  # as on the papers' GPUs; half of them resume
_TEXT = ("--train-sentences", "600", "--valid-sentences", "20", "--test-sentences", "20")
_PAIRS = ("--train-pairs", "600", "--valid-pairs", "20", "--test-pairs", "20")
# Bytes of a process beside its model: Python, PyTorch, fairseq and temporary tensors; and of each
# parameter, the buffer of legacy_ddp in which gradients are summed. With these nothing measured was
# above its estimate: 7.8 GiB of 8.0 for two processes of lm, 6.3 of 7.7 for two of mlm.
_PROGRAM, _SUMMED = 0.9 * GIB, 4


@dataclass(frozen=True)
class Kind:
    """A kind of model: the table whose recipe is rehearsed.

    corpora: names of prepared folders, the paper's first. prepare: the words of a command that
    generates text. more_symbols: number that its task adds to the dictionary.
    """

    table: str
    corpora: tuple[str, ...]
    prepare: tuple[str, ...]
    more_symbols: int = 0


KINDS: Mapping[str, Kind] = {
    "lm": Kind(
        "table2",
        ("wikitext-103", "wikitext-2", "wikitext-2-mini"),
        ("fairseq_plugins.data.prepare", "toy", *_TEXT),
    ),
    "mlm": Kind(
        "table8",
        ("wikitext-103-mlm", "novels-small", "novels-1000", "novels-mini"),
        ("fairseq_plugins.data.prepare_mlm", "toy", "--merges", "60", *_TEXT),
        more_symbols=1,
    ),
    "mt": Kind(
        "table4",
        ("wmt14-en-de", "mid-en-de", "multi30k-en-de"),
        ("fairseq_plugins.translation.prepare", "toy", "--merges", "60", *_PAIRS),
    ),
}
DATA_FILE = "data.json"
_TRAIN, _TRAIN_LINES, _OTHER_LINES = "train", 600, 20
# One sample a step and process, in full precision, since a CPU has no other.
_ON_A_CPU = (
    "common.cpu=true",
    "common.fp16=false",
    "dataset.batch_size=1",
    "dataset.num_workers=0",
    "optimization.update_freq=[1]",
    "checkpoint.save_interval_updates=0",
)


@dataclass(frozen=True)
class RehearsedTraining:
    """A training to rehearse.

    vocabulary: size of the paper's dictionary. corpus: prepared folder whose first lines it reads,
    None for generated text. processes: of the first two updates. memory: estimated bytes of each.
    """

    kind: str
    planned: PlannedRun
    vocabulary: int
    corpus: Path | None
    processes: int
    memory: float


def plan(
    root: Path, name: str, processes: int | None = None, row: str = "base", scale: str = "paper"
) -> RehearsedTraining:
    """Plan the rehearsal of a kind in `KINDS`.

    processes: of the first two updates; None for as many as fit into the free memory.

    Raises OptionError: too few or too many processes.
    """
    if processes is not None and not LEAST_PROCESSES <= processes <= MOST_PROCESSES:
        raise OptionError(
            f"--processes must be from {LEAST_PROCESSES} to {MOST_PROCESSES}, but is {processes}"
        )
    run = Run(KINDS[name].table, scale, row, "vanilla", 1)
    planned = plan_run(configs_folder(root), run, Devices(gpus=1))
    vocabulary = vocabulary_of(root, planned.final.data)
    parameters = count_parameters(planned.final, vocabulary)
    model = memory_of(_in_full_precision(planned.final.config), parameters, vocabulary)
    each = model + _SUMMED * parameters + _PROGRAM
    free = memory.available()
    if free is not None and processes is not None:  # asked for: swap serves, too
        free += memory.free_swap()
    count = _fitting(name, processes, each, free)
    return RehearsedTraining(name, planned, vocabulary, find_corpus(root, name), count, each)


def _fitting(name: str, processes: int | None, each: float, available: int | None) -> int:
    """Return the number of processes, checked against the free memory (OptionError: no room)."""
    if available is None:
        return processes or MOST_PROCESSES
    fitting = min(MOST_PROCESSES, int(available / each))
    count = processes or max(fitting, LEAST_PROCESSES)
    if count > fitting:
        raise OptionError(
            f"--processes must be at most {fitting} for {name}, since each takes some "
            f"{each / GIB:.1f} GiB and {available / GIB:.1f} GiB are free, but is {count}"
        )
    return count


def train(root: Path, rehearsed: RehearsedTraining, launcher: Launcher | None = None) -> str:
    """Train two updates over gloo, a third one in half as many processes, and evaluate.

    Returns a report of the steps. Raises WorkError: a command failed, with the end of its log.
    """
    launch = launcher or ProcessLauncher(root)
    planned, folder = rehearsed.planned, root_folder("checkpoints") / "rehearsal" / rehearsed.kind
    data = folder / "data"
    training = replace(planned.final, folder=folder, data_elsewhere=data)
    shutil.rmtree(root / folder, ignore_errors=True)
    (root / folder).mkdir(parents=True)
    log, checkpoint = root / folder / "train.log", folder / LAST
    text = _make_data(root, rehearsed, data, launch, log)
    task = planned.experiment.task_of(root / data)

    def update(last: int, processes: int) -> float:
        overrides = (
            *training.overrides,
            *_ON_A_CPU,
            *(f"task.{key}={hydra_word(value)}" for key, value in task.items()),
            *_together(processes),
            f"task.data={hydra_word(data.as_posix())}",
            f"checkpoint.save_dir={hydra_word(folder.as_posix())}",
            f"optimization.max_update={last}",
        )
        _, *words = executable(train_command(training.variant.recipe, overrides))
        with memory.PeakOfChildren() as peak:
            run_command(launch, ["python", *_torchrun(processes), *words], log)
        found = read_updates(root / checkpoint)
        if found != last:
            raise WorkError(f"{checkpoint} must be of {last} updates, but is of {found}")
        return peak.bytes / GIB

    count, half = rehearsed.processes, rehearsed.processes // 2
    first = update(UPDATES, count)
    size = (root / checkpoint).stat().st_size
    resumed = update(UPDATES + 1, half)
    planned.experiment.measure(training, root / folder)  # ValueError: the log has no number
    for step in planned.experiment.steps(training, checkpoint, planned.run, 0):
        run_command(launch, step.command, root / folder / step.log)
        step.read(root / folder / step.log)
    shutil.rmtree(root / folder)
    return (
        f"{rehearsed.kind}: {UPDATES} updates of {planned.run.table}'s recipe "
        f"({planned.run.row}) on {text}, in {count} processes with at most {first:.1f} GiB of "
        f"memory in all ({count * rehearsed.memory / GIB:.1f} GiB estimated), a checkpoint of "
        f"{size / 1e9:.2f} GB, another update from it in {_counted(half)} ({resumed:.1f} GiB), "
        "and its evaluation"
    )


def _make_data(
    root: Path, rehearsed: RehearsedTraining, data: Path, launch: Launcher, log: Path
) -> str:
    """Make the data folder, and describe its text."""
    kind = KINDS[rehearsed.kind]
    if rehearsed.corpus is None:
        run_command(launch, ["python", "-m", *kind.prepare, "--output", data.as_posix()], log)
        text = "generated text"
    else:
        take_part(root / rehearsed.corpus, root / data)
        text = f"the first lines of {rehearsed.corpus.name}"
    for dictionary in (root / data).glob("dict*.txt"):
        symbols = rehearsed.vocabulary - kind.more_symbols
        fill_dictionary(dictionary, symbols - len(SPECIAL_SYMBOLS))
    return text


def find_corpus(root: Path, kind: str) -> Path | None:
    """Return the first prepared folder for a kind of model, as `root_folder` does, or None."""
    folders = (root_folder("data") / name for name in KINDS[kind].corpora)
    return next((one for one in folders if (root / one / DATA_FILE).is_file()), None)


def take_part(corpus: Path, target: Path) -> None:
    """Copy the dictionaries, and the first lines of each split and of the raw references.

    Raises DataError: a file of the corpus is damaged.
    """
    target.mkdir(parents=True)
    for index in sorted(corpus.glob("*.idx")):
        count = _TRAIN_LINES if index.name.startswith(_TRAIN) else _OTHER_LINES
        check_split(index.with_suffix(""))
        whole = MMapIndexedDataset(str(index.with_suffix("")))
        part = MMapIndexedDatasetBuilder(f"{target / index.stem}.bin", whole._index.dtype)
        for number in range(min(count, len(whole))):
            part.add_item(whole[number])
        part.finalize(str(target / index.name))
    for path in (*corpus.glob("dict*.txt"), corpus / DATA_FILE):
        shutil.copyfile(path, target / path.name)
    for text in sorted(corpus.glob("raw/*.*")):
        if text.name.split(".")[0] in ("valid", "test"):
            (target / "raw").mkdir(exist_ok=True)
            with text.open("rb") as lines, (target / "raw" / text.name).open("wb") as part:
                part.writelines(itertools.islice(lines, _OTHER_LINES))


def fill_dictionary(path: Path, entries: int) -> None:
    """Pad a dictionary to a number of entries with words that no text has."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines += [f"madeupword{number:06} 0" for number in range(entries - len(lines))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _together(processes: int) -> tuple[str, ...]:
    """Return the overrides for several processes over gloo; without one each trains alone."""
    size = f"distributed_training.distributed_world_size={processes}"
    if processes == 1:
        return (size,)
    return (
        size,
        "distributed_training.distributed_backend=gloo",
        "distributed_training.ddp_backend=legacy_ddp",
        "distributed_training.distributed_init_method=env://",
        "distributed_training.distributed_no_spawn=true",
        "distributed_training.distributed_rank=${oc.env:RANK}",
    )


def _torchrun(processes: int) -> Sequence[str]:
    if processes == 1:
        return ()
    return ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")


def _counted(processes: int) -> str:
    return "one process" if processes == 1 else f"{processes} processes"


def _in_full_precision(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with those settings of `_ON_A_CPU` on which memory depends."""
    return {
        **config,
        "common": {**config["common"], "fp16": False, "bf16": False},
        "dataset": {**config["dataset"], "batch_size": 1, "max_tokens": None},
    }
