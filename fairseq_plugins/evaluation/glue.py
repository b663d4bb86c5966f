"""Scores a fine-tuned checkpoint by its task's metrics."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import utils

import fairseq_plugins.registration  # noqa: F401  (what checkpoints name)
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.dictionaries import check_same_dictionary, read_dictionary
from fairseq_plugins.common.errors import CheckpointError, DataError, OptionError
from fairseq_plugins.common.vocabulary import (
    LABEL_DIGEST,
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
from fairseq_plugins.glue.tasks import GlueTask, find_task
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import (
    SENTENCE_TASKS,
    build_trained,
    choose_device,
    read_trained,
)

LABELS = "label/dict.txt"


def evaluate(
    checkpoint: Path,
    data: Path,
    task: str,
    subset: str = "valid",
    *,
    batch_size: int = BATCH_SIZE,
    seed: int = 1,
    cpu: bool = False,
) -> dict[str, Any]:
    """The metrics of a checkpoint on one split of a task.

    data: the task's folder. seed: of encodings that draw in evaluation too. cpu: even where there
    is a GPU. Returns {"task", "subset", "examples", "metrics": {name: percent}}; the score by
    which checkpoints are compared is the first of the metrics.

    Raises:
        OptionError: unknown task or split, one without labels, or an empty batch.
        DataError: no such data.
        CheckpointError: none that can be read, or one that is not of this task, whose dictionary
            or classes are not the data's, or whose classes cannot be told.
    """
    check_at_least(1, batch_size=batch_size)
    facts = find_task(task)
    if facts.split(subset).label is None:
        raise OptionError(f"`subset` must be one with labels, but {task} has none for {subset!r}")
    needed = ["input0/dict.txt", f"input0/{subset}.bin"]
    needed += [] if facts.labels.is_number else [LABELS]
    for name in needed:
        if not (data / name).is_file():
            raise DataError(f"{data / name} does not exist")
    state = read_trained(checkpoint, models=[ROBERTA], tasks=SENTENCE_TASKS)
    _check_fits(state, checkpoint, data, subset, facts)
    model, _, fairseq_task = build_trained(checkpoint, state, data)
    utils.set_torch_seed(seed)  # after loading, which seeds the draws of an encoding too
    device = choose_device(cpu=cpu)
    model = model.to(device)
    fairseq_task.load_dataset(subset)
    batches = _batches(fairseq_task, subset, batch_size)
    targets, predictions = _predict(model, fairseq_task, batches, facts, device)
    return {
        "task": task,
        "subset": subset,
        "examples": len(targets),
        "metrics": score(facts, targets, predictions),
    }


def _check_fits(state: Any, checkpoint: Path, data: Path, subset: str, facts: GlueTask) -> None:
    task = state["cfg"]["task"]
    if task.num_classes != facts.labels.num_classes or (
        bool(task.regression_target) != facts.labels.is_number
    ):
        kind = "numbers" if task.regression_target else f"{task.num_classes} classes"
        raise CheckpointError(f"{checkpoint} was trained for {kind}, which is not {facts.name}")
    vocabulary = Vocabulary.read(data / "input0" / "dict.txt", ROBERTA_TABLE)
    check_vocabulary(checkpoint, state, vocabulary)
    for part in sorted(data.glob("input*")):
        check_split(part / subset, len(vocabulary.symbols))
    if not facts.labels.is_number:  # numbers have no dictionary
        _check_same_labels(state, checkpoint, data / LABELS)


def _check_same_labels(state: Any, checkpoint: Path, ours: Path) -> None:
    """Refuse other classes, or another order of them, which follows from the training examples."""
    known, classes = find_option(state, "model", LABEL_DIGEST), read_dictionary(ours)
    if known:
        if digest(classes) != known:
            raise CheckpointError(
                f"{ours} must have the classes that {checkpoint} was trained on, in their order, "
                f"with the digest {known}, but the digest is {digest(classes)}: prepare the data "
                "as for the training"
            )
        return
    # From before training wrote it.
    theirs = find_dictionary(checkpoint, state, LABELS)
    if theirs is None:
        raise CheckpointError(
            f"{checkpoint} does not say on which classes it was trained, and its data is not in "
            f"{state['cfg']['task'].data}: {LABELS} of that data must be at "
            f"{checkpoint.parent / LABELS}"
        )
    check_same_dictionary(ours, theirs)


def _batches(task: Any, subset: str, batch_size: int) -> Iterator[Any]:
    """Batch examples of about one length, so that there is little padding."""
    dataset = task.dataset(subset)
    by_length = sorted(range(len(dataset)), key=dataset.num_tokens)
    for start in range(0, len(by_length), batch_size):
        yield dataset.collater([dataset[i] for i in by_length[start : start + batch_size]])


@torch.no_grad()
def _predict(
    model: Any, task: Any, batches: Iterator[Any], facts: GlueTask, device: torch.device
) -> tuple[list[Any], list[Any]]:
    """Targets and predictions: names of classes, or numbers on the labels' own scale."""
    head = task.cfg.classification_head_name
    targets: list[Any] = []
    predictions: list[Any] = []
    for batch in batches:
        inputs = {name: value.to(device) for name, value in batch["net_input"].items()}
        logits = model(**inputs, features_only=True, classification_head_name=head)[0].float()
        expected = batch["target"].view(-1)
        if facts.labels.is_number:
            predictions += (logits.view(-1) * facts.labels.highest).tolist()
            targets += (expected * facts.labels.highest).tolist()
        else:
            predictions += _names(task, logits.argmax(dim=1).tolist(), facts)
            targets += _names(task, expected.tolist(), facts)
    return targets, predictions


def _names(task: Any, classes: list[int], facts: GlueTask) -> list[str]:
    """Names of classes by the dictionary of the labels."""
    labels = task.label_dictionary
    names = [labels[c + labels.nspecial] for c in classes]
    strange = set(names) - set(facts.labels.classes)
    if strange:
        raise DataError(
            f"{task.cfg.data}/label holds {', '.join(map(repr, sorted(strange)))}, "
            f"which {facts.name} has not"
        )
    return names
