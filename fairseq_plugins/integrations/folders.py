"""Reading of config.json and weights in Hugging Face folders, as plain data."""

import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fairseq_plugins.common.checkpoints import read_tensors
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.files import require_object

logger = logging.getLogger(__name__)

CONFIG_FILE, WEIGHTS_FILE, OLD_WEIGHTS_FILE = (
    "config.json",
    "model.safetensors",
    "pytorch_model.bin",
)
_PARTS = (f"{WEIGHTS_FILE}.index.json", f"{OLD_WEIGHTS_FILE}.index.json")
# TensorFlow's names of a layer norm's weight and bias.
_OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
# Weights of layers and embeddings; all others belong to a head or pooler, or are copies.
_BODY = re.compile(r"embeddings\.|encoder\.")
_NUMBERS = re.compile(r"embeddings\.(position_ids|token_type_ids)")  # constants, not weights


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; CheckpointError with the path for a missing or damaged file."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent} does not hold {path.name}")
    return require_object(path, CheckpointError)


def find_weights(folder: Path) -> Path:
    """Find model.safetensors, else pytorch_model.bin; raise CheckpointError if neither exists."""
    for name in (WEIGHTS_FILE, OLD_WEIGHTS_FILE):
        if (folder / name).is_file():
            return folder / name
    parts = [name for name in _PARTS if (folder / name).is_file()]
    more = f"; {parts[0]} is of several files, which have to be saved as one" if parts else ""
    raise CheckpointError(f"{folder} does not hold {WEIGHTS_FILE} or {OLD_WEIGHTS_FILE}{more}")


def read_weights(path: Path, prefix: str) -> dict[str, Tensor]:
    """Read all weights of a model as float32.

    Args:
        path: result of `find_weights`.
        prefix: prefix to remove from names of the body in models with a head, as ``bert.``.

    Raises:
        CheckpointError: naming the file if it is damaged or holds anything but tensors.
    """
    if path.suffix == ".bin":
        given = read_tensors(path)
    else:
        try:
            given = load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
    found = {}
    for name, weight in given.items():
        short = name.removeprefix(prefix)
        for old, new in _OLD_NAMES.items():
            if short.endswith(f"LayerNorm{old}"):
                short = short.removesuffix(old) + new
        if short in found:
            raise CheckpointError(f"{path} has {short} twice, with and without {prefix}")
        found[short] = weight.float() if weight.is_floating_point() else weight
    return found


def select_weights(
    path: Path,
    weights: Mapping[str, Tensor],
    body: Mapping[str, tuple[int, ...]],
    head: Mapping[str, tuple[int, ...]],
) -> dict[str, Tensor]:
    """Select the weights of the body and the head; log the names of the others.

    Args:
        path: path of the file, for error messages.
        weights: result of `read_weights`.
        body: shapes of all weights of the body, by name.
        head: shapes of the output head's weights; the head may be absent as a whole.

    Raises:
        CheckpointError: missing weights, unknown weights of layers or embeddings, wrong shapes, or
            numbers that are not finite.
    """
    needed = {**body, **(head if head.keys() & weights.keys() else {})}
    left = [name for name in weights if name not in needed]
    foreign = [name for name in left if _BODY.match(name) and not _NUMBERS.fullmatch(name)]
    reject_names(path, "lacks", needed.keys() - weights.keys())
    reject_names(path, "must not have", foreign)
    if left:
        logger.info("not converted: %s", ", ".join(sorted(left)))
    for name, shape in needed.items():
        if tuple(weights[name].shape) != shape:
            raise CheckpointError(
                f"{path}: {name} must have the shape {shape} by {CONFIG_FILE}, but has "
                f"{tuple(weights[name].shape)}"
            )
        if not bool(torch.isfinite(weights[name]).all()):
            raise CheckpointError(f"{path}: {name} must be finite, but has infinite numbers or NaN")
    return {name: weights[name] for name in needed}


def reject_names(path: Path, verb: str, names: Collection[str]) -> None:
    """Raise CheckpointError naming the given weights, if there are any."""
    if names:
        raise CheckpointError(f"{path} {verb} {len(names)} weights: {', '.join(sorted(names)[:6])}")
