"""Checks that the weights of a checkpoint match its own options.

The model is built from the options on PyTorch's device ``meta``, without memory for weights, and
its weights are compared by name and shape. Numbers are range-checked first, since a huge one would
make the build endless.
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

from fairseq_plugins.common.checkpoints import as_mapping
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

_LARGEST = 2**40  # bound of numeric options
_SHOWN = 12  # weights listed in an error message
# Prefix of the layers' weights, by model and side.
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
# Weights of adaptive inputs, whose rows add up to the number of tokens.
_ADAPTIVE = re.compile(r"decoder\.embed_tokens\.embeddings\.\d+\.0\.weight")
# Errors besides ValueError that building a model from impossible options may raise.
_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError)
_NOTES = re.compile(r"\n\s*(full_key|object_type|reference_type)[:=].*")


def is_ours(checkpoint: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint was written by one of this package's models."""
    config = checkpoint.get("cfg")
    options = config.get("model") if isinstance(config, Mapping) else None
    if not isinstance(options, Mapping) or checkpoint.get("args") is not None:
        return False
    return options.get("_name") in MODELS


def require_valid_numbers(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Check that a checkpoint's weights are finite and its options in range.

    Args:
        path: path of the checkpoint, for error messages.
        checkpoint: result of `read_checkpoint`, of one of this package's models.

    Raises:
        CheckpointError: the message begins with the path and names the weight or the option.
    """
    config = checkpoint["cfg"]
    _require_finite(path, checkpoint["model"])
    _require_bounded(path, config)
    try:
        check_numbers(SimpleNamespace(**config["model"]), config["model"]["_name"])
    except (OptionError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def require_fit(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Check that a checkpoint's weights are those of the model that its options describe.

    Args:
        path: path of the checkpoint, for error messages.
        checkpoint: result of `read_checkpoint`, of one of this package's models.

    Raises:
        CheckpointError: as `require_valid_numbers`; also for options that no model accepts, or
            missing, superfluous or misshapen weights.
    """
    require_valid_numbers(path, checkpoint)
    config, weights = checkpoint["cfg"], checkpoint["model"]
    _require_layers(path, config["model"], weights)
    expected, saved = _built_and_saved_weights(path, config, weights)
    wrong = [
        f"{name} is {shape_of(saved, name)} where the model has {shape_of(expected, name)}"
        for name in sorted({*expected, *saved})
        if shape_of(expected, name) != shape_of(saved, name)
    ]
    if wrong:
        raise CheckpointError(
            f"{path} does not fit the model that it describes: {shortened(wrong)}"
        )


def _require_finite(path: Path, weights: Mapping[str, Any]) -> None:
    for name, weight in weights.items():
        if not isinstance(name, str) or not torch.is_tensor(weight):
            raise CheckpointError(f"{path}: weight {name} must be a tensor, but is {weight!r:.40}")
        if weight.is_floating_point() and not weight.isfinite().all():
            raise CheckpointError(f"{path}: weight {name} has values that are not finite")


def _require_bounded(path: Path, config: Mapping[str, Any]) -> None:
    for section in ("model", "task"):
        for name, value in _numbers(section, config.get(section)):
            if not (math.isfinite(value) and abs(value) <= _LARGEST):
                raise CheckpointError(
                    f"{path}: option {name} must be a finite number of at most {_LARGEST:,}, but "
                    f"is {value}"
                )


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers in nested options with their names."""
    value = as_mapping(value)
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
        saved = len({match[1] for name in weights if (match := pattern.match(name))})
        option = getattr(Options(options), f"{side}_layers")
        if option != saved:
            raise CheckpointError(
                f"{path}: option {side}_layers must be {saved}, the number of layers with "
                f"weights, but is {option!r}"
            )


def _built_and_saved_weights(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the weights of the model that the options describe, and the checkpoint's as loaded."""
    section = dict(config["model"]) | {DIGEST: "", LABEL_DIGEST: "", "init_from": None}
    others = {name: config[name] for name in ("task", "common") if config.get(name) is not None}
    task = _Task(config, weights)

    def build() -> Any:
        root = OmegaConf.create({**others, "model": section}, flags={"allow_objects": True})
        return models.build_model(root.model, task, from_checkpoint=True)

    try:
        with _quiet():
            try:
                with torch.device("meta"):
                    model = build()
            except RuntimeError as error:  # NotImplementedError is one
                if "meta" not in str(error):
                    raise
                model = build()  # a third-party module reads weight values, which meta lacks
            saved = dict(weights)
            model.upgrade_state_dict(saved)
            return model.state_dict(), saved
    except (ValueError, RuntimeError, *_ERRORS) as error:
        reason = " ".join(_NOTES.sub("", str(error)).split()) or type(error).__name__
        raise CheckpointError(
            f"{path}: no model can be built from its options: {reason}"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence logs and warnings, and leave PyTorch's random state unchanged."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class _Task(SimpleNamespace):
    """Stand-in for a fairseq task, with dictionaries of the right sizes."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
        name = config["model"]["_name"]
        source, target = (_symbols(weights, table, name) for table in _TABLES[name])
        given = as_mapping(config.get("task") or {})
        options = {"tokens_per_sample": None, "data": "", **given}
        super().__init__(
            cfg=SimpleNamespace(**options), source_dictionary=source, target_dictionary=target
        )

    def max_positions(self) -> Any:
        """Return the task's longest sequence, if it sets one."""
        return getattr(self.cfg, "max_positions", None)


def _symbols(weights: Mapping[str, Any], table: str, model: str) -> Dictionary:
    """Make a dictionary with one symbol for each row of a table."""
    parts = [table] if table in weights else [name for name in weights if _ADAPTIVE.match(name)]
    rows = sum(len(weights[name]) for name in parts)
    dictionary = Dictionary()
    for i in range(rows - len(dictionary) - (model == ROBERTA)):
        dictionary.add_symbol(str(i))
    if model == ROBERTA:
        dictionary.add_symbol(MASK)
    return dictionary


def shortened(descriptions: list[str]) -> str:
    """Join descriptions of weights for a message, at most `_SHOWN` of them."""
    more = len(descriptions) - _SHOWN
    return "; ".join(descriptions[:_SHOWN] + ([f"and {more} more"] if more > 0 else []))


def shape_of(weights: Mapping[str, Any], name: str) -> str:
    """Return the shape of a weight for a message; `absent` without one."""
    return str(tuple(weights[name].shape)) if name in weights else "absent"
