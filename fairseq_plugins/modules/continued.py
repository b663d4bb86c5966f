"""Initialisation from a checkpoint whose model has another encoding or attention.

The BERT paper replaces the position module of a pre-trained model in this way. Weights outside the
encodings must match exactly; encoding weights are loaded if both models use the same encoding.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_plugins.common.checkpoints import model_options, read_checkpoint
from fairseq_plugins.common.errors import CheckpointError, checkpoint_given_by
from fairseq_plugins.common.vocabulary import DECODER_TABLE, ROBERTA_TABLE, check_vocabulary
from fairseq_plugins.encodings import expand_name, get_entry
from fairseq_plugins.encodings.absolute import Sines
from fairseq_plugins.encodings.hierarchical import Hierarchical
from fairseq_plugins.modules.fitting import is_ours, require_valid_numbers, shape_of
from fairseq_plugins.modules.growing import grow_table
from fairseq_plugins.modules.identity import LM, ROBERTA, describe, describe_checkpoint, differences
from fairseq_plugins.modules.naming import name_stack
from fairseq_plugins.modules.restored import resume_file
from fairseq_plugins.modules.vocabulary import vocabularies_of

logger = logging.getLogger(__name__)

STACKS = {ROBERTA: "encoder.sentence_encoder.", LM: "decoder."}  # prefix of the layers' weights
_TOKENS = {ROBERTA: ROBERTA_TABLE, LM: DECODER_TABLE}
THEIR_TABLE, OUR_TABLE = "embed_positions.weight", "position_embedding.weight"
# Names of encoding weights: on the input of the stack or of deeper layers, and inside attentions.
_INPUT = re.compile(r"(position_embedding|deeper_embeddings\.\d+)\.")
_LAYERS = re.compile(r"layers\.\d+\.self_attn\.attention\.encoding\.")
_OUTPUT_NORM = re.compile(r"layers\.\d+\.self_attn\.attention\.output_norm\.")
_SHOWN = 12  # weights listed in an error message


def rename_learned_table(state: dict[str, Any], stack: str, pad: int) -> None:
    """Convert the position table of fairseq's ``roberta`` to the name and rows used here, in place.

    Its first rows, up to the padding index, belong to no position.
    """
    if stack + THEIR_TABLE in state:
        state[stack + OUR_TABLE] = state.pop(stack + THEIR_TABLE)[pad + 1 :]


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
    """Comparison of a checkpoint's weights with a model's.

    Attributes:
        taken: names loaded from the checkpoint.
        new: names in the model that keep their initial values.
        left: names in the checkpoint that are not used.
        wrong: messages about weights that must match and do not.
        grown: position tables derived from the checkpoint's, by name.
    """

    taken: list[str]
    new: list[str]
    left: list[str]
    wrong: list[str]
    grow_table: dict[str, Tensor] = field(default_factory=dict)


def initialize_from(
    model: nn.Module, path: Path, config: Any, task: Any, name: str
) -> WeightComparison:
    """Load the matching weights of a checkpoint, and log the names of new and unused ones.

    Args:
        model: a model of one of `STACKS`.
        path: checkpoint of the same model; for ``pe_roberta`` also of fairseq's ``roberta``.
        config: options of the model.
        task: fairseq's task, with the dictionary.
        name: registered name of the model.

    Raises:
        ValueError: a position table cannot be derived from the checkpoint's.
        CheckpointError: the file is no checkpoint, has another dictionary, or differs outside the
            position encodings in a weight or an option. Nothing is then loaded.
    """
    with checkpoint_given_by("`init_from`"):
        return _initialize(model, path, config, task, name)


def _initialize(
    model: nn.Module, path: Path, config: Any, task: Any, name: str
) -> WeightComparison:
    checkpoint = read_checkpoint(path)
    if is_ours(checkpoint):
        require_valid_numbers(path, checkpoint)
    state, stack = dict(checkpoint["model"]), STACKS[name]
    if name == ROBERTA:
        rename_learned_table(state, stack, task.source_dictionary.pad())
    theirs = model_options(path, checkpoint) or {}
    check_vocabulary(path, checkpoint, *vocabularies_of(task, [_TOKENS[name]]))
    own = model.state_dict()
    # `version` marks fairseq's checkpoint format. Published models lack it, and the final layer
    # norm that it stands for has weights of its own.
    if (version := f"{stack}version") in own:
        state.setdefault(version, own[version])
    describe_checkpoint(path, checkpoint)  # raises for an unknown encoding
    parts, their_parts = _parts(config, name), _parts(theirs, name)
    if str(_option(config, "init_encoding", "checkpoint")) == "new":
        their_parts = {site: set() for site in their_parts}  # matches no encoding
    fit = compare(own, state, parts, their_parts)
    _grow_tables(model, state, fit, _option(config, "grow_table", "copy"), parts, their_parts)
    fit.wrong[:0] = _other_options(config, theirs, name)
    if fit.wrong:
        more = len(fit.wrong) - _SHOWN
        shown = fit.wrong[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise CheckpointError(
            f"{path} must differ only in its position encoding and attention: {'; '.join(shown)}."
        )
    model.load_state_dict({**own, **{name: state[name] for name in fit.taken}, **fit.grow_table})
    tokens = state.get(f"{stack}embed_tokens.weight")  # none with adaptive inputs
    _scale_sines(model, tokens, fit, same=parts["input"] == their_parts["input"])
    logger.info("init_from %s: %d weights loaded", path, len(fit.taken))
    logger.info("init_from: new, with their initial values: %s", ", ".join(fit.new) or "none")
    logger.info("init_from: unused: %s", ", ".join(fit.left) or "none")
    return fit


def compare(
    own: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    parts: Mapping[str, set[str]],
    their_parts: Mapping[str, set[str]],
) -> WeightComparison:
    """Compare weights by name; `parts` are the encodings on the input and in the layers."""
    fit = WeightComparison([], [], [], [])
    for name in [*own, *(name for name in state if name not in own)]:
        site = _site(name)
        if name in own and name in state and own[name].shape == state[name].shape:
            same = site is None or parts[site] == their_parts[site]
            (fit.taken if same else fit.new).append(name)
            if not same:
                fit.left.append(name)
        elif site is not None or _OUTPUT_NORM.match(_inner(name)):
            if name in own:
                fit.new.append(name)
            if name in state:
                fit.left.append(name)
        else:
            fit.wrong.append(f"{name} is {shape_of(state, name)}, here {shape_of(own, name)}")
    return fit


def _grow_tables(
    model: nn.Module,
    state: Mapping[str, Tensor],
    fit: WeightComparison,
    how: str,
    parts: Mapping[str, set[str]],
    their_parts: Mapping[str, set[str]],
) -> None:
    """Derive new position tables from the checkpoint's tables of the same meaning.

    These are tables of the same encoding with another length, and ``hierarchical`` after
    ``learned``.
    """
    for name, module in model.named_modules(remove_duplicate=False):
        weight = f"{name}.weight"
        site = _site(weight)
        if site is None or weight not in fit.new or weight not in state:
            continue
        before, after = their_parts[site], parts[site]
        derived = (before, after) == ({"learned"}, {"hierarchical"})
        if not derived and (before != after or isinstance(module, Hierarchical)):
            continue
        made = grow_table(module, state[weight], how)
        if made is None:
            continue
        fit.grow_table[weight], words = made
        fit.new.remove(weight)
        fit.left.remove(weight)
        logger.info("init_from: %s: %s", weight, words)


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


def _option(config: Any, name: str, default: Any = None) -> Any:
    """Read an option from a mapping or a Namespace."""
    value = config.get(name) if hasattr(config, "get") else getattr(config, name, None)
    return default if value is None else value


def _other_options(config: Any, theirs: Any, name: str) -> list[str]:
    """Describe options outside encoding and attention in which the checkpoint differs.

    Such options change the computation even if all weights have the same shapes.
    """
    ours = describe(config, model=name)
    may_differ = {"encoding", "attention"}.union(*(site.linear for site in ours.sites.values()))
    return [
        f"{d.about} is {d.theirs}, here {d.ours}"
        for d in differences(describe(theirs), ours)
        if d.about not in may_differ
    ]


def _parts(config: Any, model: str) -> dict[str, set[str]]:
    """Return the encodings that have weights on the input and in the layers."""
    is_roberta = model == ROBERTA
    side = "encoder" if is_roberta else "decoder"
    absolute = "learned" if _option(config, f"{side}_learned_pos", is_roberta) else "base"
    given = _option(config, "position_encoding", "base")
    off = _option(config, "no_token_positional_embeddings", False)
    named = name_stack(
        given, "", absolute=None if off else absolute, base=absolute if is_roberta else None
    )
    names = set(expand_name(named.name))
    on_input = {name for name in names if "embed" in get_entry(name).hooks}
    in_layers = {name for name in names if get_entry(name).hooks - {"embed"}}
    return {"input": on_input, "layers": in_layers}
