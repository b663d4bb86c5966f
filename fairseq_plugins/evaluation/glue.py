"""GLUE's metrics of a fine-tuned checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils

import fairseq_plugins.registration  # noqa: F401  (classes that checkpoints name)
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.dictionaries import check_same_dictionary, read_dictionary
from fairseq_plugins.common.errors import CheckpointError, DataError, OptionError
from fairseq_plugins.common.vocabulary import (
    LABEL_DIGEST,
    LABELS,
    ROBERTA_TABLE,
    Vocabulary,
    check_vocabulary,
    digest,
    find_dictionary,
    find_option,
)
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.glue import BATCH_SIZE
from fairseq_plugins.glue.metrics import score
from fairseq_plugins.glue.tasks import GlueTask
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import (
    SENTENCE_TASKS,
    build_trained,
    choose_device,
    read_trained,
)


def evaluate(
    checkpoint: Path, data: Path, task: GlueTask, subset: str = "valid", **options: Any
) -> dict[str, Any]:
    """Compute the metrics of a checkpoint on one split of a task, of GLUE or any other.

    The other options are those of `predict`. Returns {"task", "subset", "examples", "metrics":
    {name: percent}}; the first metric is the one by which checkpoints are compared.

    Raises:
        OptionError: the split is unknown or has no labels.
        OptionError, DataError, CheckpointError: as `predict`.
    """
    if task.split(subset).label is None:
        raise OptionError(
            f"`subset` must be one with labels, but {task.name} has none for {subset!r}"
        )
    predicted = predict(checkpoint, data, task, subset, **options)
    targets = [one.target for one in predicted]
    return {
        "task": task.name,
        "subset": subset,
        "examples": len(targets),
        "metrics": score(task, targets, [one.value for one in predicted]),
    }


@dataclass(frozen=True)
class Prediction:
    """The prediction for one example."""

    value: Any  # name of a class, or a number on the labels' own scale
    probability: float | None  # of the class; None for a number
    target: Any  # the label, of the same kind; None without one


def predict(
    checkpoint: Path,
    data: Path,
    glue_task: GlueTask,
    subset: str,
    *,
    batch_size: int = BATCH_SIZE,
    seed: int = 1,
    cpu: bool = False,
) -> list[Prediction]:
    """Predict the labels of a split, in the order of its examples.

    Args:
        checkpoint: fine-tuned on this task.
        data: the task's folder.
        glue_task: the task.
        subset: name of the split, with or without labels.
        batch_size: examples of a batch.
        seed: seed of encodings that are random in evaluation too.
        cpu: use the CPU even where there is a GPU.

    Raises:
        OptionError: `batch_size` is below 1.
        DataError: the data is missing.
        CheckpointError: the checkpoint cannot be read, is of another task, or has another
            dictionary, or other or unknown classes.
    """
    check_at_least(1, batch_size=batch_size)
    needed = ["input0/dict.txt", f"input0/{subset}.bin"]
    needed += [] if glue_task.labels.is_number else [LABELS]
    for name in needed:
        if not (data / name).is_file():
            raise DataError(f"{data / name} does not exist")
    state = read_trained(checkpoint, models=[ROBERTA], tasks=SENTENCE_TASKS)
    _check_fits(state, checkpoint, data, subset, glue_task)
    model, _, fairseq_task = build_trained(checkpoint, state, data)
    utils.set_torch_seed(seed)  # after loading, which sets a seed too
    model = model.to(choose_device(cpu=cpu))
    fairseq_task.load_dataset(subset)
    return _predict(model, fairseq_task, _batches(fairseq_task, subset, batch_size), glue_task)


def _check_fits(state: Any, checkpoint: Path, data: Path, subset: str, glue_task: GlueTask) -> None:
    task = state["cfg"]["task"]
    if task.num_classes != glue_task.labels.num_classes or (
        bool(task.regression_target) != glue_task.labels.is_number
    ):
        kind = "numbers" if task.regression_target else f"{task.num_classes} classes"
        raise CheckpointError(f"{checkpoint} was trained for {kind}, which is not {glue_task.name}")
    vocabulary = Vocabulary.read(data / "input0" / "dict.txt", ROBERTA_TABLE)
    check_vocabulary(checkpoint, state, vocabulary)
    for part in sorted(data.glob("input*")):
        check_split(part / subset, len(vocabulary.symbols))
    if not glue_task.labels.is_number:  # numbers have no dictionary
        _check_same_labels(state, checkpoint, data / LABELS)


def _check_same_labels(state: Any, checkpoint: Path, ours: Path) -> None:
    """Check the classes and their order, which depends on the training examples."""
    known, classes = find_option(state, "model", LABEL_DIGEST), read_dictionary(ours)
    if known:
        if digest(classes) != known:
            raise CheckpointError(
                f"{ours} must have {checkpoint}'s classes in their order (digest {known}), but has "
                f"digest {digest(classes)}: prepare the data as for the training"
            )
        return
    # A checkpoint of an older version, without the digest.
    theirs = find_dictionary(checkpoint, state, LABELS)
    if theirs is None:
        raise CheckpointError(
            f"{checkpoint} does not record its classes, and its data is not in "
            f"{state['cfg']['task'].data}: put {LABELS} of that data at "
            f"{checkpoint.parent / LABELS}"
        )
    check_same_dictionary(ours, theirs)


def _batches(task: Any, subset: str, batch_size: int) -> Iterator[Any]:
    """Batch examples of similar length, to save padding."""
    dataset = task.dataset(subset)
    by_length = sorted(range(len(dataset)), key=dataset.num_tokens)
    for start in range(0, len(by_length), batch_size):
        yield dataset.collater([dataset[i] for i in by_length[start : start + batch_size]])


@torch.no_grad()
def _predict(
    model: Any, task: Any, batches: Iterator[Any], glue_task: GlueTask
) -> list[Prediction]:
    """Predict all examples, in the order of the split."""
    labels, device = glue_task.labels, next(model.parameters()).device
    rows: list[tuple[int, Any, float | None, Any]] = []  # number, output, probability, target
    for batch in batches:
        inputs = {name: value.to(device) for name, value in batch["net_input"].items()}
        inputs["classification_head_name"] = task.cfg.classification_head_name
        logits = model(**inputs, features_only=True)[0].float()
        outputs = logits.view(-1) if labels.is_number else logits.argmax(1)
        unknown = [None] * len(logits)
        probabilities = unknown if labels.is_number else logits.softmax(1).amax(1).tolist()
        targets = batch["target"].view(-1).tolist() if "target" in batch else unknown
        rows += zip(batch["id"].tolist(), outputs.tolist(), probabilities, targets, strict=True)

    def label(output: Any) -> Any:
        if labels.is_number:
            return labels.unscale(output)
        return task.label_dictionary[output + task.label_dictionary.nspecial]

    found = [
        Prediction(label(o), p, None if t is None else label(t)) for _, o, p, t in sorted(rows)
    ]
    foreign = {x for one in found for x in (one.value, one.target)} - {None, *labels.classes}
    if foreign and not labels.is_number:
        raise DataError(
            f"{task.cfg.data}/label holds {', '.join(map(repr, sorted(foreign)))}, "
            f"which {glue_task.name} does not have"
        )
    return found
