"""Labelled data of users: tab-separated files with a header, read as a task like GLUE's.

Columns are `label` and `sentence`, or `label`, `sentence1` and `sentence2` for pairs, in any order;
other columns are ignored. Labels are classes of one word each, or numbers.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import read_bytes
from fairseq_plugins.data.folders import report
from fairseq_plugins.glue.read import read_lines, read_split
from fairseq_plugins.glue.tasks import GlueTask, Labels, Split

LABEL = "label"
Kind = Literal["classes", "number"]
_EXPORTED = re.compile('"[^"]*(""[^"]*)+"')  # a cell with quotation marks, as exported
_SENTENCES = (("sentence",), ("sentence1", "sentence2"))
_LEAST_PER_CLASS = 2  # one to train on, one to hold out
_FEWEST_MEASURED = 2  # examples that a score needs
_HELD_OUT = 10  # one of this many examples is held out


def read_task(
    train: Path, valid: Path | None = None, predict: Path | None = None, kind: Kind | None = None
) -> GlueTask:
    """Read and check the files, and describe them as a task.

    Args:
        train: examples with labels.
        valid: examples to measure on; None to hold out a part of `train`.
        predict: examples without labels.
        kind: kind of the labels; None means numbers if all labels are numbers and one has a
            decimal point, else classes.

    Raises:
        DataError: with file and line: a column is missing, another number of fields than columns,
            an empty sentence or label, a label that is no number, or a class with one example; or
            there is one example to measure on.
    """
    sentences = _sentences_of(train)
    labelled = [Split("train", train.name, sentences, LABEL)]
    labelled += [Split("valid", valid.name, sentences, LABEL)] if valid else []
    unlabelled = [Split("test", predict.name, sentences, None, required=False)] if predict else []
    free = GlueTask(train.stem, (*labelled, *unlabelled), _FreeLabels(), ())
    given = (train, *([valid] if valid else []), *([predict] if predict else []))
    found: dict[str, list[str]] = {}
    for path, split in zip(given, free.splits, strict=True):
        examples = read_split(path, free, split).examples
        for number, example in enumerate(examples, start=2):  # after the header
            if not all(sentence.strip() for sentence in example.sentences):
                raise DataError(f"{path}, line {number}: a sentence must not be empty")
        if quoted := sum(any(map(_EXPORTED.fullmatch, one.sentences)) for one in examples):
            report(
                f"{path.name}: {quoted} examples have quotation marks that a spreadsheet added; "
                "they are read as part of the text"
            )
        found[split.name] = [example.label or "" for example in examples]
    if valid and len(found["valid"]) < _FEWEST_MEASURED:
        raise DataError(f"{valid} must have at least {_FEWEST_MEASURED} examples, but has 1")
    labels = _labels_of(train, found["train"], kind)
    for path, split in zip(given, labelled, strict=False):
        for number, label in enumerate(found[split.name], start=2):
            if problem := labels.problem(label):
                raise DataError(f"{path}, line {number}: the label {problem}, but is {label!r}")
    metrics = ("pearson", "spearman") if labels.is_number else ("accuracy", "matthews")
    return GlueTask(train.stem, free.splits, labels, metrics)


class _FreeLabels(Labels):
    """Labels that are not known yet: any one word."""

    def problem(self, label: str) -> str | None:
        """Describe the error in a label; None if it is valid."""
        if label in SPECIAL_SYMBOLS:
            return f"must be none of fairseq's symbols {', '.join(SPECIAL_SYMBOLS)}"
        return None if len(label.split()) == 1 else "must be one word or number"


def _sentences_of(path: Path) -> tuple[str, ...]:
    """Return the columns of the sentences, from the header."""
    _, first = next(read_lines(path, read_bytes(path)), (1, ""))
    header = [name for name in first.split("\t") if name] or ["none"]
    for names, others in zip(_SENTENCES, reversed(_SENTENCES), strict=True):
        if {*names} <= {*header}:
            found = [name for name in header if name in (LABEL, *names, *others)]
            if len(found) > len({LABEL, *names}):
                raise DataError(
                    f"{path}, line 1: the header must have `label` and the sentences once each, "
                    f"but has {', '.join(found)}"
                )
            return names
    raise DataError(
        f"{path}, line 1: the header must have the columns `label` and `sentence`, or `label`, "
        f"`sentence1` and `sentence2`, with tabs between them, but has {', '.join(header):.200}"
    )


def _labels_of(path: Path, labels: Sequence[str], kind: Kind | None) -> Labels:
    numbers = [_number(label) for label in labels]
    are_numbers = None not in numbers
    if kind is None:
        # A missing number, written nan, makes no classes of the others.
        kind = "number" if are_numbers and any("." in label for label in labels) else "classes"
    if kind == "number":
        known = [one for one in numbers if one is not None and math.isfinite(one)] or [0.0]
        return _Numbers(
            lowest=min(known), highest=max(known) if len({*known}) > 1 else known[0] + 1
        )
    counts = Counter(labels)
    if len(counts) < 2:
        raise DataError(f"{path}: there must be two classes or more, but all are {labels[0]!r}")
    for number, label in enumerate(labels, start=2):
        if counts[label] < _LEAST_PER_CLASS:
            raise DataError(
                f"{path}, line {number}: the class {label!r} must have at least "
                f"{_LEAST_PER_CLASS} examples, but this is the only one"
                + ("; --labels number if labels are amounts" if are_numbers else "")
            )
    return Labels(tuple(sorted(counts)))


class _Numbers(Labels):
    """Numbers without bounds; `lowest` and `highest` are those of the training examples."""

    def problem(self, label: str) -> str | None:
        """Describe the error in a label; None if it is valid."""
        number = _number(label)
        return "must be a number" if number is None or not math.isfinite(number) else None


def _number(text: str) -> float | None:
    """Return the number in a text, also nan and inf; None for anything else."""
    try:
        return float(text)
    except ValueError:
        return None


def held_out_size(examples: int) -> int:
    """Return how many training examples are held out where there is no file to measure on."""
    return max(_FEWEST_MEASURED, examples // _HELD_OUT)


def text_lines(path: Path, sentences: Sequence[str], seed: int = 1) -> list[bytes]:
    """Return the sentences of a file as lines of text, in an order drawn by the seed."""
    split = Split("text", path.name, tuple(sentences), None)
    examples = read_split(path, GlueTask("text", (), _FreeLabels(), ()), split).examples
    lines = [f"{sentence.strip()}\n".encode() for one in examples for sentence in one.sentences]
    Random(seed).shuffle(lines)
    return lines
