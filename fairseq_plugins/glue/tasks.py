"""The nine tasks of GLUE (Wang et al. 2018) and the two generated ones: files, labels, metrics."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.suggestions import did_you_mean

HELD_OUT = "held_out"  # a part of the training examples, for model selection
GLUE_BASE = "https://dl.fbaipublicfiles.com/glue/data"
MRPC_BASE = "https://dl.fbaipublicfiles.com/senteval/senteval_data"


@dataclass(frozen=True)
class Split:
    """One file of a task.

    name: fairseq's name: train, valid (valid1: a second one), test, and held_out, which has no
        file of its own.
    sentences: columns of the sentences. label: column of the labels, None for unlabelled files.
    header: columns of a file without a header line.
    """

    name: str
    file: str
    sentences: tuple[str, ...]
    label: str | None
    header: tuple[str, ...] | None = None
    required: bool = True


@dataclass(frozen=True)
class Labels:
    """Labels of a task: `classes`, or numbers from `lowest` to `highest`, 0 to 1 in training."""

    classes: tuple[str, ...] = ()
    lowest: float = 0.0
    highest: float = 5.0

    @property
    def is_number(self) -> bool:
        return not self.classes

    @property
    def num_classes(self) -> int:
        """The number of the head's outputs: 1 for numbers."""
        return len(self.classes) or 1

    def scale(self, label: float) -> float:
        """Return the number that a model learns for a label."""
        return (label - self.lowest) / (self.highest - self.lowest)

    def unscale(self, value: float) -> float:
        """Return the label of a model's number."""
        return self.lowest + value * (self.highest - self.lowest)

    def problem(self, label: str) -> str | None:
        """Describe the error in a label; None if it is valid."""
        if self.classes:
            return None if label in self.classes else f"must be one of {', '.join(self.classes)}"
        try:
            fits = self.lowest <= float(label) <= self.highest  # false for nan
        except ValueError:
            fits = False
        return None if fits else f"must be a number from {self.lowest:g} to {self.highest:g}"


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE's format.

    metrics: names of `metrics.METRICS`, first the one by which checkpoints are chosen.
    positive: the class of F1.
    addresses: address of a zip with the files in a folder of the task's name; MRPC's three files.
    drops_malformed: drop training and development lines with a wrong number of fields, as
    fairseq's script does, instead of raising.
    """

    name: str
    splits: tuple[Split, ...]
    labels: Labels
    metrics: tuple[str, ...]
    positive: str | None = None
    addresses: tuple[str, ...] = ()
    drops_malformed: bool = False

    @property
    def config(self) -> str:
        """The name of the recipe in configs/."""
        return f"glue_{self.name.replace('-', '').lower()}"

    @property
    def inputs(self) -> int:
        """The number of an example's sentences."""
        return len(self.splits[0].sentences)

    def split(self, name: str) -> Split:
        """Return a split by name; OptionError if the task does not have it."""
        if name == HELD_OUT:
            return replace(self.split("train"), name=HELD_OUT)
        for split in self.splits:
            if split.name == name:
                return split
        names = ", ".join(split.name for split in self.splits)
        raise OptionError(f"`subset` must be one of {names} in {self.name}, but is {name!r}")


def _splits(
    sentences: tuple[str, ...], label: str, header: tuple[str, ...] | None = None
) -> tuple[Split, ...]:
    return (
        Split("train", "train.tsv", sentences, label, header),
        Split("valid", "dev.tsv", sentences, label, header),
        Split("test", "test.tsv", sentences, None, required=False),
    )


_BINARY = Labels(("0", "1"))
_ENTAILMENT = Labels(("entailment", "not_entailment"))
_ONE, _TWO = ("sentence",), ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_STRINGS = ("#1 String", "#2 String")
_COLA_HEADER = ("source", "label", "mark", "sentence")  # CoLA's files have no header
_CORRELATIONS = ("spearman", "pearson")
_ACCURACY, _F1 = ("accuracy",), ("f1", "accuracy")
_MNLI_SPLITS = (
    Split("train", "train.tsv", _TWO, "gold_label"),
    Split("valid", "dev_matched.tsv", _TWO, "gold_label"),
    Split("valid1", "dev_mismatched.tsv", _TWO, "gold_label", required=False),
    Split("test", "test_matched.tsv", _TWO, None, required=False),
    Split("test1", "test_mismatched.tsv", _TWO, None, required=False),
)
_MRPC_ADDRESSES = (
    f"{MRPC_BASE}/msr_paraphrase_train.txt",
    f"{MRPC_BASE}/msr_paraphrase_test.txt",
    f"{GLUE_BASE}/mrpc_dev_ids.tsv",
)


def _task(
    name: str,
    splits: tuple[Split, ...],
    labels: Labels,
    metrics: tuple[str, ...],
    zip_name: str | None = None,
    **more: Any,
) -> GlueTask:
    """Describe a task whose files are in one zip, by default named after the task."""
    addresses = (f"{GLUE_BASE}/{zip_name or name}.zip",)
    return GlueTask(name, splits, labels, metrics, addresses=addresses, **more)


GLUE = (
    _task("CoLA", _splits(_ONE, "label", _COLA_HEADER), _BINARY, ("matthews", "accuracy")),
    _task("SST-2", _splits(_ONE, "label"), _BINARY, _ACCURACY),
    GlueTask(
        "MRPC",
        _splits(_STRINGS, "Quality"),
        _BINARY,
        _F1,
        positive="1",
        addresses=_MRPC_ADDRESSES,
    ),
    _task("STS-B", _splits(_TWO, "score"), Labels(), _CORRELATIONS),
    _task(
        "QQP",
        _splits(_QUESTIONS, "is_duplicate"),
        _BINARY,
        _F1,
        "QQP-clean",
        positive="1",
        drops_malformed=True,
    ),
    _task("MNLI", _MNLI_SPLITS, Labels(("contradiction", "entailment", "neutral")), _ACCURACY),
    _task("QNLI", _splits(("question", "sentence"), "label"), _ENTAILMENT, _ACCURACY, "QNLIv2"),
    _task("RTE", _splits(_TWO, "label"), _ENTAILMENT, _ACCURACY),
    _task("WNLI", _splits(_TWO, "label"), _BINARY, _ACCURACY),
)

_LABELLED = _splits(_ONE, "label")[:2]  # without a test set
# Generated by `glue.prepare_generated`.
TOY_GLUE = (
    GlueTask("Order", _LABELLED, Labels(("right", "wrong")), _ACCURACY),
    GlueTask("Place", _LABELLED, Labels(), _CORRELATIONS),
)

TASKS = {task.name: task for task in GLUE + TOY_GLUE}


def find_task(name: str, option: str = "--task") -> GlueTask:
    """Return the task that an option names.

    Raises:
        OptionError: there is none; the message suggests a similar name.
    """
    if name in TASKS:
        return TASKS[name]
    hint = did_you_mean(name, TASKS)
    raise OptionError(f"{option} must be one of {', '.join(TASKS)}, but is {name!r}.{hint}")


def find_tasks(names: Iterable[str]) -> tuple[GlueTask, ...]:
    """Return the tasks that --tasks names, without repetitions."""
    return tuple(dict.fromkeys(find_task(name, "--tasks") for name in names))
