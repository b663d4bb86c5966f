"""Conversion of the task heads of ``pe_roberta`` to those of Hugging Face's classes."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_plugins.common.dictionaries import PADDING, read_dictionary
from fairseq_plugins.common.vocabulary import (
    LABEL_DIGEST,
    LABELS,
    digest,
    find_dictionary,
    find_option,
)
from fairseq_plugins.integrations.masked_models import OUR_WORDS, Family
from fairseq_plugins.modules.roberta_options import PERobertaConfig

logger = logging.getLogger(__name__)

_PREFIX = re.compile(r"(classification_heads|span_heads)\.[^.]+\.")


@dataclass(frozen=True)
class TaskHead:
    """The head of a task in a Hugging Face class."""

    architecture: str  # name of the class; that of the masked language model without a task head
    names: Mapping[str, str] = field(default_factory=dict)  # our names by Hugging Face's
    options: Mapping[str, Any] = field(default_factory=dict)  # entries of config.json


def is_of_task_head(name: str) -> bool:
    """Return whether a weight of ``pe_roberta`` belongs to the head of a task."""
    return _PREFIX.match(name) is not None


def label_options(source: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of config.json that name a classifier's labels in their order.

    They are in the dictionary beside the checkpoint or in its training data. Empty, with a warning,
    for a classifier without that dictionary; empty for other heads.
    """
    known = find_option(checkpoint, "model", LABEL_DIGEST)
    if not known:
        return {}
    path = find_dictionary(source, checkpoint, LABELS)
    names = [] if path is None else read_dictionary(path)
    if digest(names) != known:
        logger.warning(
            "%s: its labels become LABEL_0, LABEL_1, ..., since their names are not there: put %s "
            "of its data beside it",
            source,
            LABELS,
        )
        return {}
    names = [name for name in names if not name.startswith(PADDING)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def task_head(family: Family, ours: Mapping[str, Any], state: Mapping[str, Tensor]) -> TaskHead:
    """Return a checkpoint's only task head; an empty one if Hugging Face's classes lack it.

    Args:
        family: family to convert to.
        ours: options of the checkpoint.
        state: its weights.
    """
    prefixes = {found[0] for name in state if (found := _PREFIX.match(name))}
    if len(prefixes) != 1:
        return TaskHead(family.architecture)
    (prefix,) = prefixes
    weights = {name: weight for name, weight in state.items() if name.startswith(prefix)}
    options: dict[str, Any] = {}
    if prefix.startswith("span_heads"):
        kind, layers = "QuestionAnswering", {"qa_outputs": "out_proj"}
    else:
        dense, output = family.classifier
        kind, layers = "SequenceClassification", {dense: "dense", output: "out_proj"}
        options["classifier_dropout"] = ours.get("pooler_dropout", PERobertaConfig.pooler_dropout)
    names = {
        f"{theirs}.{part}": f"{prefix}{layer}.{part}"
        for theirs, layer in layers.items()
        for part in ("weight", "bias")
    }
    width = state[OUR_WORDS].size(1)
    is_theirs = (
        weights.keys() == {*names.values()}  # a spectral norm has others
        and all(weight.size(-1) == width for weight in weights.values() if weight.dim() == 2)
        and ("classifier_dropout" not in options or ours.get("pooler_activation_fn") == "tanh")
    )
    if not is_theirs:
        return TaskHead(family.architecture)
    labels = range(len(weights[f"{prefix}out_proj.bias"]))
    options["id2label"] = {str(label): f"LABEL_{label}" for label in labels}
    return TaskHead(family.architecture.replace("MaskedLM", kind), names, options)
