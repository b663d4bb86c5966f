"""Dictionary and label digests, which tie a checkpoint to its training data."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.option_field import option
from fairseq_plugins.common.vocabulary import DIGEST, Vocabulary, digest

logger = logging.getLogger(__name__)


@dataclass
class DictionaryConfig(FairseqDataclass):
    """Option that records the dictionary of the training data in checkpoints."""

    dictionary_digest: str = option(
        "",
        "written into checkpoints by training: digest of the dictionary, or of source "
        "and target dictionaries; data with another digest is an error",
    )


def vocabularies_of(task: Any, tables: Sequence[str]) -> list[Vocabulary]:
    """Return the task's dictionaries, source before target, with the tables that use them."""
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
    """Record a digest of the task's dictionaries in a model's options, which checkpoints store.

    Raises:
        CheckpointError: the options come from a checkpoint with other dictionaries.
    """
    ours = digest(*(vocabulary.symbols for vocabulary in vocabularies))
    recorded = getattr(config, DIGEST, "")
    root = config._get_root() if OmegaConf.is_config(config) else None
    # fairseq sets this flag only on configs that it reads from a checkpoint.
    if not recorded and root is not None and root._get_flag("allow_objects"):
        logger.warning(
            "the checkpoint does not record its dictionary; assuming that of the data without a "
            "check"
        )
    if recorded not in ("", ours):
        paths = " and ".join(str(vocabulary.path) for vocabulary in vocabularies)
        raise CheckpointError(
            f"{paths} must have the words that the model was trained on, in their order, with the "
            f"digest {recorded}, but the digest is {ours}"
        )
    record_option(config, DIGEST, ours)


def labels_of(task: Any) -> str:
    """Return a digest of a task's class labels in order; empty if it has none.

    Labels are ordered by their frequency in the training examples, so two preparations of one task
    may order them differently.
    """
    labels = getattr(task, "label_dictionary", None)
    if labels is None or task.cfg.regression_target:  # regression has no classes
        return ""
    return digest(labels.symbols[labels.nspecial :])


def record_option(config: Any, name: str, value: str) -> None:
    """Set an option of a model, also in the copy that fairseq saves in checkpoints."""
    setattr(config, name, value)
    root = config._get_root() if OmegaConf.is_config(config) else None
    if root is not None and name in (root.get("model") or {}):
        root.model[name] = value
