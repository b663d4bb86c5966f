"""Conversion between ``pe_roberta`` checkpoints and weights of Hugging Face's BERT and RoBERTa."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks.masked_lm import MaskedLMConfig
from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch import Tensor

import fairseq_plugins.registration  # noqa: F401  (registers the models' options)
from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import Vocabulary, check_vocabulary, digest
from fairseq_plugins.integrations.folders import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    find_weights,
    read_weights,
    reject_names,
    select_weights,
)
from fairseq_plugins.integrations.masked_models import (
    FIXED,
    OPTIONS,
    OUR_FIXED,
    OUR_HEAD,
    OUR_POSITIONS,
    OUR_SEGMENT,
    OUR_WORDS,
    POSITIONS,
    ROWS_OF_VOCABULARY,
    STACK,
    TIED,
    TYPES,
    Family,
    body_weights,
    check_options,
    head_weights,
    sizes,
)
from fairseq_plugins.integrations.task_heads import is_of_task_head, label_options, task_head
from fairseq_plugins.modules.fitting import require_fit
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import require_names
from fairseq_plugins.modules.roberta_options import PERobertaConfig
from fairseq_plugins.modules.stack import rename_learned_table

logger = logging.getLogger(__name__)

CHECKPOINT_FILE = "model.pt"
_PAD = 1  # index in fairseq's dictionary
_INITIAL_STD = 0.02  # standard deviation of BERT's initial weights
_HEAD_SEED = 1  # makes conversion deterministic
_VERSION = f"{STACK}version"  # fairseq's checkpoint format


def read_huggingface_state(
    source: Path, config: Mapping[str, Any], family: Family, rows: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Read the weights of a Hugging Face folder under our names, in the order of our vocabulary.

    A model without an output head gets one that is initialised as BERT's (normal with standard
    deviation 0.02, biases 0) and tied to the word embedding; masked-LM training must learn it.

    Args:
        source: the folder.
        config: its checked config.json.
        family: model family.
        rows: (V,), index in their vocabulary of each of our tokens.

    Returns:
        The state, with all rows of their position table; and the token type embeddings (T, H),
        which are not part of the state.

    Raises:
        ValueError: a damaged file, weights of another kind of model, or a vocabulary of another
            size.
    """
    if config["vocab_size"] != len(rows):
        raise CheckpointError(
            f"{source / CONFIG_FILE}: vocab_size must be {len(rows)}, the size of the tokenizer, "
            f"but is {config['vocab_size']}"
        )
    size, path = sizes(config), find_weights(source)
    body, head = body_weights(config["num_hidden_layers"]), head_weights(family)
    theirs = select_weights(
        path,
        read_weights(path, f"{family.model_type}."),
        {**_shapes(body, size), TYPES: (size["T"], size["H"])},
        _shapes(head, size),
    )
    names = {name: own for name, (own, _) in (body | head).items()}
    state = {names[name]: weight for name, weight in theirs.items() if name != TYPES}
    if family.bias not in theirs:
        logger.info("no output head: initialised as BERT's, tied to the word embedding")
        state |= _new_head(size["H"], size["V"])
    for name in ROWS_OF_VOCABULARY:
        state[name] = state[name][rows]
    return state, theirs[TYPES]


def _shapes(
    weights: Mapping[str, tuple[str, str]], size: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    return {name: tuple(size[c] for c in shape) for name, (_, shape) in weights.items()}


def _new_head(width: int, vocab_size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(_HEAD_SEED)
    dense = torch.empty(width, width).normal_(std=_INITIAL_STD, generator=generator)
    return {
        f"{OUR_HEAD}dense.weight": dense,
        f"{OUR_HEAD}dense.bias": torch.zeros(width),
        f"{OUR_HEAD}layer_norm.weight": torch.ones(width),
        f"{OUR_HEAD}layer_norm.bias": torch.zeros(width),
        f"{OUR_HEAD}bias": torch.zeros(vocab_size),
    }


def write_checkpoint(
    folder: Path, state: dict[str, Tensor], config: Mapping[str, Any], symbols: Sequence[str]
) -> None:
    """Write model.pt as fairseq does, without optimizer state.

    Args:
        folder: existing folder.
        state: all weights under our names except the tied one.
        config: their config.json.
        symbols: fairseq's dictionary, in the order of the rows.
    """
    state[TIED] = state[OUR_WORDS]
    model = PERobertaConfig(position_encoding="learned", dictionary_digest=digest(symbols))
    for name, option in OPTIONS.items():
        setattr(model, option, config[name])
    model.max_positions = len(state[OUR_POSITIONS])
    options = OmegaConf.merge(OmegaConf.structured(model), {"_name": ROBERTA})
    options.segments = "pairs" if OUR_SEGMENT in state else "none"
    full = OmegaConf.structured(FairseqConfig)
    full.model = options
    task = MaskedLMConfig(data=".", tokens_per_sample=model.max_positions)
    full.task = OmegaConf.merge(OmegaConf.structured(task), {"_name": "masked_lm"})
    checkpoint = {
        "args": None,
        "cfg": OmegaConf.to_container(full, resolve=True, enum_to_str=True),
        "model": state,
        "optimizer_history": [
            {
                "criterion_name": "MaskedLmLoss",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {},
                "num_updates": 0,
            }
        ],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
        "task_state": {},
    }
    torch.save(checkpoint, folder / CHECKPOINT_FILE)


def read_fairseq_state(
    source: Path, family: Family, vocabulary: Vocabulary
) -> tuple[Any, Any, Any]:
    """Read a ``pe_roberta`` checkpoint that a Hugging Face family can represent.

    Task heads that Hugging Face's classes lack are dropped with a warning; so are all heads if
    there are several.

    Args:
        source: the checkpoint.
        family: family to convert to.
        vocabulary: vocabulary of its data.

    Returns:
        Its options, its weights by our names, and entries of config.json for its labels.

    Raises:
        ValueError: a damaged file, options that the family does not have, or another vocabulary.
    """
    checkpoint = read_checkpoint(source)
    require_names(source, checkpoint, [ROBERTA])
    require_fit(source, checkpoint)
    ours = checkpoint["cfg"]["model"]
    segments = ours.get("segments", "none")
    supported = ("none", "pairs") if max(family.segments) > 1 else ("none",)
    check_options(source, ours, {name: (value,) for name, value in OUR_FIXED.items()})
    check_options(source, {"segments": segments}, {"segments": supported})
    encoding = ours.get("position_encoding")
    if encoding != "learned" and not (encoding == "base" and ours.get("encoder_learned_pos")):
        raise CheckpointError(
            f"{source}: position_encoding must be learned, as in Hugging Face's model, but is "
            f"{encoding!r}"
        )
    state = dict(checkpoint["model"])
    rename_learned_table(state, STACK, _PAD)
    state.pop(_VERSION, None)
    converted = {*task_head(family, ours, state).names.values()}
    left = sorted(name for name in state if is_of_task_head(name) and name not in converted)
    for name in left:
        del state[name]
    if left:
        logger.warning("not converted: %s", ", ".join(left))
    weights = body_weights(ours["encoder_layers"]) | head_weights(family)
    needed = {*(own for own, _ in weights.values()), TIED, *converted}
    needed |= {OUR_SEGMENT} if segments == "pairs" else set()
    reject_names(source, "lacks", needed - state.keys())
    reject_names(source, "must not have", state.keys() - needed)
    check_vocabulary(source, checkpoint, vocabulary)
    # fairseq's own mixed precision saves half-precision weights.
    wide = {name: weight.float() for name, weight in state.items()}
    return ours, wide, label_options(source, checkpoint) if converted else {}


def write_huggingface_folder(
    folder: Path,
    family: Family,
    ours: Mapping[str, Any],
    state: Mapping[str, Tensor],
    rows: Tensor,
    extra: Mapping[str, Tensor],
    options: Mapping[str, Any],
) -> None:
    """Write config.json and model.safetensors of a model with its output head.

    A head of a task is beside it; `architectures` then names the class with that head.

    Args:
        folder: existing folder.
        family: model family.
        ours: options of the checkpoint.
        state: its weights, as `read_fairseq_state` returns them.
        rows: (V,), index in their vocabulary of each of our tokens.
        extra: position and token type embeddings under their names, replacing ours.
        options: additional entries of config.json.
    """
    back = torch.empty_like(rows)
    back[rows] = torch.arange(len(rows))
    prefix = f"{family.model_type}."
    head = head_weights(family)
    weights = {}
    for name, (own, _) in (body_weights(ours["encoder_layers"]) | head).items():
        value = state[own][back] if own in ROWS_OF_VOCABULARY else state[own]
        weights[name if name in head else prefix + name] = value.contiguous().clone()
    weights |= {prefix + name: value.contiguous() for name, value in extra.items()}
    task = task_head(family, ours, state)
    weights |= {name: state[own].contiguous().clone() for name, own in task.names.items()}
    config = {
        **{name: ours.get(option) for name, option in OPTIONS.items()},
        "layer_norm_eps": ours.get("layer_norm_eps", PERobertaConfig.layer_norm_eps),
        "model_type": family.model_type,
        "architectures": [task.architecture],
        **{name: values[0] for name, values in FIXED.items()},
        "vocab_size": len(rows),
        "max_position_embeddings": len(weights[prefix + POSITIONS]),
        "type_vocab_size": len(weights[prefix + TYPES]),
        **task.options,
        **options,
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n")
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
