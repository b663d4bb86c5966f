"""Conversion of the task heads of ``pe_roberta`` to those of Hugging Face's classes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fairseq_plugins.integrations.masked_models import OUR_WORDS, Family
from fairseq_plugins.modules.roberta_options import PERobertaConfig

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
