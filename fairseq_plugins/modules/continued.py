"""Initialisation from a checkpoint whose model has another encoding or attention.

The BERT paper replaces the position module of a pre-trained model in this way. Weights outside the
encodings must match exactly; encoding weights are loaded if both models use the same encoding.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import CheckpointError, checkpoint_given_by
from fairseq_plugins.common.vocabulary import DECODER_TABLE, ROBERTA_TABLE, check_vocabulary
from fairseq_plugins.encodings import get_entry
from fairseq_plugins.encodings.absolute import Learned, Sines
from fairseq_plugins.encodings.hierarchical import Hierarchical
from fairseq_plugins.modules.fitting import is_ours, require_valid_numbers, shape_of, shortened
from fairseq_plugins.modules.growing import grow_table
from fairseq_plugins.modules.identity import (
    LM,
    ROBERTA,
    ModelDescription,
    Options,
    describe,
    describe_checkpoint,
    differences,
)
from fairseq_plugins.modules.restored import resume_file
from fairseq_plugins.modules.stack import rename_learned_table
from fairseq_plugins.modules.vocabulary import vocabularies_of

logger = logging.getLogger(__name__)

STACKS = {ROBERTA: "encoder.sentence_encoder.", LM: "decoder."}  # prefix of the layers' weights
_TOKENS = {ROBERTA: ROBERTA_TABLE, LM: DECODER_TABLE}
# Names of encoding weights: on the input of the stack or of deeper layers, and inside attentions.
# Classes of the encodings on the `input` and in the `layers`; None equals none of them.
Parts = Mapping[str, Sequence[type | None]]
_INPUT = re.compile(r"(position_embedding|deeper_embeddings\.\d+)\.")
_LAYERS = re.compile(r"layers\.\d+\.self_attn\.attention\.encoding\.")
_OUTPUT_NORM = re.compile(r"layers\.\d+\.self_attn\.attention\.output_norm\.")


def pop_init_from(config: Any) -> Path | None:
    """Return and clear ``init_from``; None if unset or if training resumes from its own checkpoint.

    fairseq restores a checkpoint after building the model, and stores the config in its own
    checkpoints. The option is cleared there so that loading them does not need the file again.

    Raises:
        ValueError: `finetune_from_model` is also given.
    """
    given = config.init_from
    config.init_from = None
    root = config._get_root() if OmegaConf.is_config(config) else None
    if root is not None and "model" in root and "init_from" in (root.model or {}):
        root.model.init_from = None
    if not given:
        return None
    checkpoint = root.get("checkpoint") if root is not None else None
    if checkpoint is None:
        return Path(given)
    restored = resume_file(checkpoint)
    if restored.exists():
        logger.info("init_from: not used, training goes on from %s", restored)
        return None
    if checkpoint.finetune_from_model:
        raise ValueError(
            "`init_from` must not be given together with finetune_from_model="
            f"{checkpoint.finetune_from_model}: both set the initial weights."
        )
    return Path(given)


@dataclass(frozen=True)
class WeightComparison:
    """Comparison of a checkpoint's weights with a model's."""

    loaded: list[str] = field(default_factory=list)  # from the checkpoint
    new: list[str] = field(default_factory=list)  # of the model, with initial values
    unused: list[str] = field(default_factory=list)  # in the checkpoint, not loaded
    mismatches: list[str] = field(default_factory=list)  # of weights that must match and do not
    grown: dict[str, Tensor] = field(default_factory=dict)  # position tables from the checkpoint's


@checkpoint_given_by("`init_from`")
def initialize_from(model: nn.Module, path: Path, config: Any, task: Any, name: str) -> None:
    """Load the matching weights of a checkpoint, and log the names of new and unused ones.

    Args:
        model: a model of one of `STACKS`.
        path: checkpoint of the same model, or of fairseq's own ``roberta`` or ``transformer_lm``.
        config: options of the model.
        task: fairseq's task, with the dictionary.
        name: registered name of the model.

    Raises:
        ValueError: a position table cannot be derived from the checkpoint's.
        CheckpointError: the file is no checkpoint, has another dictionary, or differs outside the
            position encodings in a weight or an option. Nothing is then loaded.
    """
    checkpoint = read_checkpoint(path)
    if is_ours(checkpoint):
        require_valid_numbers(path, checkpoint)
    saved, stack, options = dict(checkpoint["model"]), STACKS[name], Options(config)
    rename_learned_table(saved, stack, task.source_dictionary.pad())
    theirs, ours = describe_checkpoint(path, checkpoint), describe(config, model=name)
    check_vocabulary(path, checkpoint, *vocabularies_of(task, [_TOKENS[name]]))
    weights = model.state_dict()
    # `version` marks fairseq's checkpoint format. Published models lack it, and the final layer
    # norm that it stands for has weights of its own.
    if (version := f"{stack}version") in weights:
        saved.setdefault(version, weights[version])
    parts, their_parts = _parts(ours), _parts(theirs)
    if options.init_encoding == "new":
        their_parts = {site: [None] for site in their_parts}  # matches no encoding
    fit = compare(weights, saved, parts, their_parts)
    _grow_tables(model, saved, fit, options.grow_table or "copy", parts, their_parts)
    if mismatches := [*_other_options(theirs, ours), *fit.mismatches]:
        raise CheckpointError(
            f"{path} must differ only in its position encoding and attention: "
            f"{shortened(mismatches)}."
        )
    model.load_state_dict({**weights, **{name: saved[name] for name in fit.loaded}, **fit.grown})
    tokens = saved.get(f"{stack}embed_tokens.weight")  # none with adaptive inputs
    _scale_sines(model, tokens, fit, same=parts["input"] == their_parts["input"])
    logger.info("init_from %s: %d weights loaded", path, len(fit.loaded))
    logger.info("init_from: new, with their initial values: %s", ", ".join(fit.new) or "none")
    logger.info("init_from: unused: %s", ", ".join(fit.unused) or "none")


def compare(
    weights: Mapping[str, Tensor],
    saved: Mapping[str, Tensor],
    parts: Parts,
    their_parts: Parts,
) -> WeightComparison:
    """Compare the weights of a model and a checkpoint by name.

    `parts` and `their_parts` are the encodings on the input and in the layers of the two.
    """
    fit = WeightComparison()
    for name in [*weights, *(name for name in saved if name not in weights)]:
        site = _site(name)
        if name in weights and name in saved and weights[name].shape == saved[name].shape:
            same = site is None or parts[site] == their_parts[site]
            (fit.loaded if same else fit.new).append(name)
            if not same:
                fit.unused.append(name)
        elif site is not None or _OUTPUT_NORM.match(_inner(name)):
            if name in weights:
                fit.new.append(name)
            if name in saved:
                fit.unused.append(name)
        else:
            fit.mismatches.append(
                f"{name} is {shape_of(saved, name)}, here {shape_of(weights, name)}"
            )
    return fit


def _grow_tables(
    model: nn.Module,
    saved: Mapping[str, Tensor],
    fit: WeightComparison,
    method: str,
    parts: Parts,
    their_parts: Parts,
) -> None:
    """Derive new position tables from the checkpoint's tables of the same meaning.

    These are tables of the same encoding with another length, and ``hierarchical`` after
    ``learned``.
    """
    for name, module in model.named_modules(remove_duplicate=False):
        weight = f"{name}.weight"
        site = _site(weight)
        if site is None or weight not in fit.new or weight not in saved:
            continue
        before, after = their_parts[site], parts[site]
        derived = (before, after) == ([Learned], [Hierarchical])
        if not derived and (before != after or isinstance(module, Hierarchical)):
            continue
        grown = grow_table(module, saved[weight], method)
        if grown is None:
            continue
        fit.grown[weight], description = grown
        fit.new.remove(weight)
        fit.unused.remove(weight)
        logger.info("init_from: %s: %s", weight, description)


def _scale_sines(
    model: nn.Module, tokens: Tensor | None, fit: WeightComparison, *, same: bool
) -> None:
    """Scale new sinusoidal embeddings to the trained token embeddings (V, C).

    If the checkpoint has the same encoding, from before scaling existed, they stay unscaled.
    """
    for name, module in model.named_modules():
        if isinstance(module, Sines) and f"{name}.scale" in fit.new:
            if same:
                module.scale_to(None)
            elif tokens is not None:
                module.scale_to(float(tokens.float().std()))


def _site(name: str) -> str | None:
    """Return ``input`` or ``layers`` for an encoding's weight, None for any other."""
    inner = _inner(name)
    if _INPUT.match(inner):
        return "input"
    return "layers" if _LAYERS.match(inner) else None


def _inner(name: str) -> str:
    """Remove the prefix of the stack from a weight's name."""
    for stack in STACKS.values():
        name = name.removeprefix(stack)
    return name


def _other_options(theirs: ModelDescription, ours: ModelDescription) -> list[str]:
    """Describe options outside encoding and attention in which the checkpoint differs.

    Such options change the computation even if all weights have the same shapes.
    """
    may_differ = {"encoding", "attention"}.union(*(site.linear for site in ours.sites.values()))
    return [
        f"{d.about} is {d.theirs}, here {d.ours}"
        for d in differences(theirs, ours)
        if d.about not in may_differ
    ]


def _parts(model: ModelDescription) -> Parts:
    """Return the classes of encodings that may have weights on the input and in the layers.

    In their order, by which weights are named.
    """
    parts = [p.name for site in model.sites.values() for p in (*site.inputs, *site.layers)]
    entries = [get_entry(name) for name in dict.fromkeys(parts)]
    return {
        "input": [entry.cls for entry in entries if "embed" in entry.hooks],
        "layers": [entry.cls for entry in entries if entry.hooks - {"embed"}],
    }
