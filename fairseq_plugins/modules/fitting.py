"""Checks that the options and the weights of a checkpoint belong to one model.

The model that the options describe is built without memory for its weights, on PyTorch's device
``meta``, and has to have the checkpoint's weights, each by name and shape. Numbers are looked at
before, since one that is too large would keep the building busy for ever.
"""

import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import models
from fairseq.data import Dictionary
from omegaconf import OmegaConf

from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import CheckpointError, OptionError
from fairseq_plugins.common.vocabulary import (
    DECODER_TABLE,
    DIGEST,
    LABEL_DIGEST,
    ROBERTA_TABLE,
    SIDE_TABLES,
)
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.identity import LM, MODELS, ROBERTA, TRANSLATION, Options

_LARGEST = 2**40  # of a number among the options
_SHOWN = 8  # weights in an error; there may be hundreds
# Where the layers of a model's stacks are.
_STACKS = {
    LM: {"decoder": "decoder."},
    ROBERTA: {"encoder": "encoder.sentence_encoder."},
    TRANSLATION: {"encoder": "encoder.", "decoder": "decoder."},
}
_TABLES = {
    LM: (DECODER_TABLE, DECODER_TABLE),
    ROBERTA: (f"encoder.{ROBERTA_TABLE}", f"encoder.{ROBERTA_TABLE}"),
    TRANSLATION: SIDE_TABLES,
}
# Of adaptive inputs and of an output, the weights that tell the number of tokens.
_ADAPTIVE = re.compile(r"decoder\.embed_tokens\.embeddings\.\d+\.0\.weight")
# What building a model of options that cannot be may raise, beside ValueError.
_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError)
_NOTES = re.compile(r"\n\s*(full_key|object_type|reference_type)[:=].*")


def is_ours(checkpoint: Mapping[str, Any]) -> bool:
    """Tell whether a checkpoint names one of this package's models, as these write it."""
    config = checkpoint.get("cfg")
    options = config.get("model") if isinstance(config, Mapping) else None
    if not isinstance(options, Mapping) or checkpoint.get("args") is not None:
        return False
    return options.get("_name") in MODELS


def require_numbers(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of one of this package's models with numbers that cannot be.

    Args:
        path: of the checkpoint, for the message.
        checkpoint: as `read_checkpoint` gives it.

    Raises:
        CheckpointError: weights that are no finite numbers, or options out of their bounds. It
            begins with the path and names the weight or the option.
    """
    config = checkpoint["cfg"]
    _require_finite(path, checkpoint["model"])
    _require_bounded(path, config)
    try:
        check_numbers(SimpleNamespace(**config["model"]), config["model"]["_name"])
    except (OptionError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def require_fit(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose weights are not those of the model that it describes.

    Args:
        path: of the checkpoint, for the message.
        checkpoint: as `read_checkpoint` gives it, of one of this package's models.

    Raises:
        CheckpointError: as `require_numbers`, and for options that a model cannot have and weights
            that are others than the model has.
    """
    require_numbers(path, checkpoint)
    config, weights = checkpoint["cfg"], checkpoint["model"]
    _require_layers(path, config["model"], weights)
    own, given = _expected(path, config, weights)
    wrong = [
        f"{name} is {_shape(given, name)} where the model has {_shape(own, name)}"
        for name in sorted({*own, *given})
        if _shape(own, name) != _shape(given, name)
    ]
    if wrong:
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        raise CheckpointError(
            f"{path} does not fit the model that it describes: {'; '.join(wrong[:_SHOWN] + more)}"
        )


def _require_finite(path: Path, weights: Mapping[str, Any]) -> None:
    for name, weight in weights.items():
        if not isinstance(name, str) or not torch.is_tensor(weight):
            raise CheckpointError(f"{path}: its weight {name} is no tensor but {weight!r:.40}")
        if weight.is_floating_point() and not weight.isfinite().all():
            raise CheckpointError(f"{path}: its weight {name} has values that are not finite")


def _require_bounded(path: Path, config: Mapping[str, Any]) -> None:
    for section in ("model", "task"):
        for name, value in _numbers(section, config.get(section)):
            if not (math.isfinite(value) and abs(value) <= _LARGEST):
                raise CheckpointError(
                    f"{path}: its option {name} must be a finite number of at most {_LARGEST:,}, "
                    f"but is {value}"
                )


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Walk over the numbers of options, with their names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(name, inner)
    elif isinstance(value, int | float):
        yield name, value


def _require_layers(path: Path, options: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    for side, prefix in _STACKS[options["_name"]].items():
        pattern = re.compile(re.escape(prefix) + r"layers\.(\d+)\.")
        found = len({match[1] for name in weights if (match := pattern.match(name))})
        asked = getattr(Options(options), f"{side}_layers")
        if asked != found:
            raise CheckpointError(
                f"{path}: its option {side}_layers must be {found}, of which it has weights, but "
                f"is {asked!r}"
            )


def _expected(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The weights of the model that is described, and those of the checkpoint as it loads them."""
    section = dict(config["model"]) | {DIGEST: "", LABEL_DIGEST: "", "init_from": None}
    known = {name: config[name] for name in ("task", "common") if config.get(name) is not None}
    task = _Task(config, weights)

    def build() -> Any:
        root = OmegaConf.create({**known, "model": section}, flags={"allow_objects": True})
        return models.build_model(root.model, task, from_checkpoint=True)

    try:
        with _quiet():
            try:
                with torch.device("meta"):
                    model = build()
            except RuntimeError as error:  # NotImplementedError is one
                if "meta" not in str(error):
                    raise
                model = build()  # with a part of somebody else's that looks at its values
            given = dict(weights)
            model.upgrade_state_dict(given)
            return model.state_dict(), given
    except (ValueError, RuntimeError, *_ERRORS) as error:
        reason = " ".join(_NOTES.sub("", str(error)).split()) or type(error).__name__
        raise CheckpointError(f"{path}: its options are not those of a model: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what is logged of a model that nobody uses, and leave the random numbers as they are."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class _Task(SimpleNamespace):
    """A stand-in for the task of a model, with dictionaries of the right sizes."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
        name = config["model"]["_name"]
        source, target = (_symbols(weights, table, name) for table in _TABLES[name])
        known = {"tokens_per_sample": None, "data": "", **(config.get("task") or {})}
        super().__init__(
            cfg=SimpleNamespace(**known), source_dictionary=source, target_dictionary=target
        )

    def max_positions(self) -> Any:
        """As fairseq's tasks of sentences have it."""
        return getattr(self.cfg, "max_positions", None)


def _symbols(weights: Mapping[str, Any], table: str, model: str) -> Dictionary:
    """A dictionary with a symbol for each row of a table."""
    parts = [table] if table in weights else [name for name in weights if _ADAPTIVE.match(name)]
    rows = sum(len(weights[name]) for name in parts)
    dictionary = Dictionary()
    for i in range(rows - len(dictionary) - (model == ROBERTA)):
        dictionary.add_symbol(str(i))
    if model == ROBERTA:
        dictionary.add_symbol(MASK)
    return dictionary


def _shape(weights: Mapping[str, Any], name: str) -> str:
    return str(tuple(weights[name].shape)) if name in weights else "absent"
