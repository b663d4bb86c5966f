"""The dictionary of a model, by which its checkpoints know the data that they can be used with."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import DIGEST, LABEL_DIGEST, Vocabulary, digest

logger = logging.getLogger(__name__)


@dataclass
class DictionaryConfig(FairseqDataclass):
    """What checkpoints say of the dictionary that the model was trained with."""

    dictionary_digest: str = field(
        default="",
        metadata={
            "help": "written by training into its checkpoints: a digest of the dictionary, or of "
            "source's and target's, by which data with another one is refused"
        },
    )


def vocabularies_of(task: Any, tables: Sequence[str]) -> list[Vocabulary]:
    """The dictionaries of fairseq's task, source's before target's, for a model's tables."""
    cfg = getattr(task, "cfg", None)
    data = Path(str(getattr(cfg, "data", "")).split(":")[0])
    names, dictionaries = ["dict.txt"], [task.source_dictionary]
    if len(tables) > 1:
        names = [f"dict.{getattr(cfg, side, None)}.txt" for side in ("source_lang", "target_lang")]
        dictionaries.append(task.target_dictionary)
    return [
        Vocabulary(data / name, dictionary.symbols, table)
        for name, dictionary, table in zip(names, dictionaries, tables, strict=True)
    ]


def record_dictionary(config: Any, vocabularies: Sequence[Vocabulary]) -> None:
    """Write a digest of the task's dictionaries into a model's options, which checkpoints keep.

    Raises:
        CheckpointError: the options come from a checkpoint with other dictionaries.
    """
    ours = digest(*(vocabulary.symbols for vocabulary in vocabularies))
    known = getattr(config, DIGEST, "")
    root = config._get_root() if OmegaConf.is_config(config) else None
    # fairseq sets this flag on configurations that it reads from a checkpoint, and on no others.
    if not known and root is not None and root._get_flag("allow_objects"):
        logger.warning(
            "the checkpoint does not say on which dictionary it was trained, so that of the data "
            "is taken for it unseen"
        )
    if known not in ("", ours):
        paths = " and ".join(str(vocabulary.path) for vocabulary in vocabularies)
        raise CheckpointError(
            f"{paths} must have the words that the model was trained on, in their order, with the "
            f"digest {known}, but the digest is {ours}"
        )
    _record(config, DIGEST, ours)


def labels_of(task: Any) -> str:
    """A digest of the classes of a task in their order; empty where it has none.

    Their order is by how often they are in the training examples, so that two preparations of one
    task may differ.
    """
    labels = getattr(task, "label_dictionary", None)
    if labels is None or task.cfg.regression_target:  # numbers have no dictionary
        return ""
    return digest(labels.symbols[labels.nspecial :])


def record_labels(config: Any, labels: str) -> None:
    """Write the digest of a task's classes, where it has some, into a model's options likewise."""
    if labels:
        _record(config, LABEL_DIGEST, labels)


def _record(config: Any, name: str, value: str) -> None:
    setattr(config, name, value)
    # fairseq builds from a copy of the options that it saves.
    root = config._get_root() if OmegaConf.is_config(config) else None
    if root is not None and name in (root.get("model") or {}):
        root.model[name] = value
