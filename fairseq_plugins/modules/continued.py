"""Continued training: a checkpoint's weights in a model with another encoding or attention.

The BERT paper replaces the position module of a pre-trained model. What belongs to no encoding
must fit exactly; an encoding's weights are taken where the two models have the same one.
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
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import DECODER_TABLE, ROBERTA_TABLE, check_vocabulary
from fairseq_plugins.encodings import expand_name, get_entry
from fairseq_plugins.encodings.absolute import Sines
from fairseq_plugins.encodings.hierarchical import Hierarchical
from fairseq_plugins.modules.fitting import is_ours, require_numbers
from fairseq_plugins.modules.growing import grown
from fairseq_plugins.modules.identity import LM, ROBERTA, describe, describe_checkpoint, differences
from fairseq_plugins.modules.naming import name_stack
from fairseq_plugins.modules.restored import own_file
from fairseq_plugins.modules.vocabulary import vocabularies_of

logger = logging.getLogger(__name__)

STACKS = {ROBERTA: "encoder.sentence_encoder.", LM: "decoder."}  # by model, before its layers
_TOKENS = {ROBERTA: ROBERTA_TABLE, LM: DECODER_TABLE}
THEIR_TABLE, OUR_TABLE = "embed_positions.weight", "position_embedding.weight"
# Where weights of encodings are: on the input (or that of deeper layers), and in the layers.
_INPUT = re.compile(r"(position_embedding|deeper_embeddings\.\d+)\.")
_LAYERS = re.compile(r"layers\.\d+\.self_attn\.attention\.encoding\.")
_OUTPUT_NORM = re.compile(r"layers\.\d+\.self_attn\.attention\.output_norm\.")
_SHOWN = 12  # weights in an error; there may be hundreds


def rename_learned_table(state: dict[str, Any], stack: str, pad: int) -> None:
    """Give the table of fairseq's own ``roberta`` the name and rows that it has here, in place.

    Its first rows, up to that of padding, belong to no position.
    """
    if stack + THEIR_TABLE in state:
        state[stack + OUR_TABLE] = state.pop(stack + THEIR_TABLE)[pad + 1 :]


def take_init_from(config: Any) -> Path | None:
    """The file to start from, or None where there is none or a checkpoint will be restored.

    fairseq restores after the model is built, and writes the config into its checkpoints: there
    the option is emptied, so that reading them does not ask for the file again.

    Raises:
        ValueError: beside `finetune_from_model`, which says where to start, too.
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
    restored = own_file(checkpoint)
    if restored.exists():
        logger.info("init_from: not used, training goes on from %s", restored)
        return None
    if checkpoint.finetune_from_model:
        raise ValueError(
            "`init_from` must not be given together with finetune_from_model="
            f"{checkpoint.finetune_from_model}: both say where training starts."
        )
    return Path(given)


@dataclass(frozen=True)
class Fit:
    """How a checkpoint's weights and a model's go together.

    taken: names that both have. new: names in the model that keep their initial values.
    left: names in the checkpoint that are not used. wrong: what does not fit, in words.
    grown: by name, tables that are made out of the checkpoint's.
    """

    taken: list[str]
    new: list[str]
    left: list[str]
    wrong: list[str]
    grown: dict[str, Tensor] = field(default_factory=dict)


def initialize_from(model: nn.Module, path: Path, config: Any, task: Any, name: str) -> Fit:
    """Load into a model what fits of a checkpoint, and log by name what is new or left behind.

    Args:
        model: of one of `STACKS`.
        path: a checkpoint of the same, or for ``pe_roberta`` of fairseq's ``roberta``.
        config: the model's options.
        task: fairseq's, with the dictionary.
        name: of the model.

    Raises:
        ValueError: a table that cannot be made out of the checkpoint's.
        CheckpointError: no checkpoint, another dictionary, or a weight outside the position
            encodings that is missing, too many or of another shape, or another option that the
            same weights would mean something else with. Nothing is then loaded.
    """
    checkpoint = read_checkpoint(path)
    if is_ours(checkpoint):
        require_numbers(path, checkpoint)
    state, stack = dict(checkpoint["model"]), STACKS[name]
    if name == ROBERTA:
        rename_learned_table(state, stack, task.source_dictionary.pad())
    theirs = model_options(path, checkpoint) or {}
    check_vocabulary(path, checkpoint, *vocabularies_of(task, [_TOKENS[name]]))
    own = model.state_dict()
    # fairseq's number of its format is no weight: published models have none, and what it tells of,
    # a last layer normalisation, has weights of its own.
    if (version := f"{stack}version") in own:
        state.setdefault(version, own[version])
    describe_checkpoint(path, checkpoint)  # or it has an encoding that is not known
    parts, their_parts = _parts(config, name), _parts(theirs, name)
    if str(_option(config, "init_encoding", "checkpoint")) == "new":
        their_parts = {place: set() for place in their_parts}  # the same as none of ours
    fit = compare(own, state, parts, their_parts)
    _grow_tables(model, state, fit, _option(config, "grow_table", "copy"), parts, their_parts)
    fit.wrong[:0] = _other_options(config, theirs, name)
    if fit.wrong:
        more = len(fit.wrong) - _SHOWN
        shown = fit.wrong[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise CheckpointError(
            f"{path}: `init_from` must be a model that differs in its position encoding and "
            f"attention alone, but in this one: {'; '.join(shown)}."
        )
    model.load_state_dict({**own, **{name: state[name] for name in fit.taken}, **fit.grown})
    tokens = state.get(f"{stack}embed_tokens.weight")  # none with adaptive inputs
    _scale_sines(model, tokens, fit, same=parts["input"] == their_parts["input"])
    logger.info("init_from %s: %d weights taken", path, len(fit.taken))
    logger.info("init_from: new, with their initial values: %s", ", ".join(fit.new) or "none")
    logger.info("init_from: left behind: %s", ", ".join(fit.left) or "none")
    return fit


def compare(
    own: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    parts: Mapping[str, set[str]],
    their_parts: Mapping[str, set[str]],
) -> Fit:
    """Weight by weight; `parts` are the encodings on the input and in the layers by name."""
    fit = Fit([], [], [], [])
    for name in [*own, *(name for name in state if name not in own)]:
        place = _place(name)
        if name in own and name in state and own[name].shape == state[name].shape:
            same = place is None or parts[place] == their_parts[place]
            (fit.taken if same else fit.new).append(name)
            if not same:
                fit.left.append(name)
        elif place is not None or _OUTPUT_NORM.match(_inner(name)):
            if name in own:
                fit.new.append(name)
            if name in state:
                fit.left.append(name)
        else:
            fit.wrong.append(f"{name} is {_shape(state, name)}, here {_shape(own, name)}")
    return fit


def _grow_tables(
    model: nn.Module,
    state: Mapping[str, Tensor],
    fit: Fit,
    how: str,
    parts: Mapping[str, set[str]],
    their_parts: Mapping[str, set[str]],
) -> None:
    """Make new tables of positions out of the checkpoint's, where those mean the same.

    That is a table of another length of the same encoding, and ``hierarchical`` after ``learned``.
    """
    for name, module in model.named_modules(remove_duplicate=False):
        weight = f"{name}.weight"
        place = _place(weight)
        if place is None or weight not in fit.new or weight not in state:
            continue
        before, after = their_parts[place], parts[place]
        derived = (before, after) == ({"learned"}, {"hierarchical"})
        if not derived and (before != after or isinstance(module, Hierarchical)):
            continue
        made = grown(module, state[weight], how)
        if made is None:
            continue
        fit.grown[weight], words = made
        fit.new.remove(weight)
        fit.left.remove(weight)
        logger.info("init_from: %s: %s", weight, words)


def _scale_sines(model: nn.Module, tokens: Tensor | None, fit: Fit, *, same: bool) -> None:
    """Make new sines as large as the tokens (V, C) are by now, where there is one table of them.

    The checkpoint's own encoding, from before sines were scaled, keeps them as they are.
    """
    for name, module in model.named_modules():
        if isinstance(module, Sines) and f"{name}.scale" in fit.new:
            if same:
                module.scale_to(None)
            elif tokens is not None:
                module.scale_to(float(tokens.float().std()))


def _shape(weights: Mapping[str, Tensor], name: str) -> str:
    return str(tuple(weights[name].shape)) if name in weights else "absent"


def _place(name: str) -> str | None:
    """``input`` or ``layers`` for a weight of an encoding, None for any other."""
    inner = _inner(name)
    if _INPUT.match(inner):
        return "input"
    return "layers" if _LAYERS.match(inner) else None


def _inner(name: str) -> str:
    """The name of a weight within its stack."""
    for stack in STACKS.values():
        name = name.removeprefix(stack)
    return name


def _option(config: Any, name: str, default: Any = None) -> Any:
    """Of a model's options, in a mapping or a Namespace."""
    value = config.get(name) if hasattr(config, "get") else getattr(config, name, None)
    return default if value is None else value


def _other_options(config: Any, theirs: Any, name: str) -> list[str]:
    """Name the options that must not differ and do, though weights may have the same shapes.

    Encodings and attentions, with the options of linear attention, may be exchanged.
    """
    ours = describe(config, model=name)
    may_differ = {"encoding", "attention"}.union(*(place.linear for place in ours.places.values()))
    return [
        f"{d.about} is {d.theirs}, here {d.ours}"
        for d in differences(describe(theirs), ours)
        if d.about not in may_differ
    ]


def _parts(config: Any, model: str) -> dict[str, set[str]]:
    """The encodings of a model by the place of their weights; fairseq's own has Base's table."""
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
