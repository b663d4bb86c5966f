"""Check of a model by a run on identical tokens, recording the arguments of its attentions.

Without positions, identical tokens have identical queries, keys and values in every layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.integrations.huggingface.families import ModelStructure, NoRotation, NoTable

_IMPLEMENTATION = "fairseq_plugins_probe"  # the name in transformers' interfaces
PROBE = "position_probe"  # keyword that the model passes to every attention
_LENGTH = 3
# Keywords of the interface that are supported here or do not change the attention.
_KNOWN = {"dropout", "scaling", "is_causal", "sliding_window", "position_ids", "use_cache"}
_KNOWN |= {"output_attentions", "output_hidden_states", "return_dict", "token_type_ids"}
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}  # relative to the largest; else 0.05


@dataclass
class AttentionCall:
    """Arguments of one attention call."""

    module: nn.Module  # the attention
    query: Tensor  # (1, H, T, D)
    key: Tensor  # (1, H or fewer, T, D)
    value: Tensor  # (1, H or fewer, T, D)
    options: dict[str, Any]  # keywords with values other than None
    mask: Any  # the mask function of the model, or its mask if it does not ask for one
    hidden: Tensor  # (1, T, C), input of the projections


@dataclass
class _Recorder:
    """Recorded attention calls, and the inputs of the attentions by module."""

    calls: list[AttentionCall]
    hidden: dict[nn.Module, Tensor]

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook of each attention that stores its input."""
        self.hidden[module] = args[0] if args else kwargs["hidden_states"]


def _record(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Record the call; return the mean of all values for every query."""
    given = {name: option for name, option in options.items() if option is not None}
    probe = given.pop(PROBE, None)
    if not isinstance(probe, _Recorder):
        raise TypeError("layers do not hand keywords on to their attention")
    hidden = probe.hidden[module]
    probe.calls.append(AttentionCall(module, query, key, value, given, mask, hidden))
    mean = value.mean(2, keepdim=True).expand(-1, -1, query.size(2), -1)
    return mean.repeat_interleave(query.size(1) // key.size(1), 1).transpose(1, 2), None


def _record_mask(*args: Any, mask_function: Any, **options: Any) -> Any:
    """Return, in place of a mask, the function that decides which keys a query sees."""
    return mask_function


def _sees(mask_function: Any, query: int, key: int) -> bool:
    zero = torch.zeros((), dtype=torch.long, device="cpu")
    return bool(mask_function(zero, zero, zero + query, zero + key))


AttentionInterface.register(_IMPLEMENTATION, _record)
AttentionMaskInterface.register(_IMPLEMENTATION, _record_mask)


@contextmanager
def without_positions(base: nn.Module, structure: ModelStructure) -> Iterator[None]:
    """Remove a base model's own RoPE and position table within a context."""
    new: dict[str, nn.Module] = {}
    if structure.rotation is not None:
        new[structure.rotation] = NoRotation()
    if structure.table is not None:
        new[structure.table] = NoTable(structure.first_row)
    old = {name: base.get_submodule(name) for name in new}
    try:
        for name, module in new.items():
            base.set_submodule(name, module)
        yield
    finally:
        for name, module in old.items():
            base.set_submodule(name, module)


@torch.no_grad()
def record_attention_calls(
    model: PreTrainedModel, structure: ModelStructure
) -> list[AttentionCall]:
    """Run a base model on identical tokens and return the calls of its attentions.

    Raises:
        ValueError: the model does not pass keywords on to its attentions.
    """
    base, config = model.base_model, model.config
    token = (int(getattr(config, "pad_token_id", None) or 0) + 1) % config.vocab_size
    tokens = torch.full((1, _LENGTH), token, device=base.device)
    implementation, is_training = config._attn_implementation, base.training
    probe = _Recorder([], {})
    hooks = [
        layer.get_submodule(structure.attention).register_forward_pre_hook(
            probe.before, with_kwargs=True
        )
        for layer in structure.layers_of(base)
    ]
    config._attn_implementation = _IMPLEMENTATION
    try:
        mask = torch.ones_like(tokens)
        inner: Any = base.eval()
        inner(input_ids=tokens, attention_mask=mask, **{PROBE: probe})
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            "`model` must attend through transformers' AttentionInterface and pass all keywords "
            f"to it, but {config.model_type!r} does not: {type(error).__name__}: {error}"
        ) from error
    finally:
        config._attn_implementation = implementation
        base.train(is_training)
        for hook in hooks:
            hook.remove()
    return probe.calls


def check_attention_calls(
    model: PreTrainedModel, structure: ModelStructure, longest: int
) -> list[AttentionCall]:
    """Check that a replaced encoding would be the model's only source of positions.

    Args:
        model: unchanged model of transformers.
        structure: structure found in it.
        longest: length up to which its mask must be that of plain attention.

    Raises:
        ValueError: an unexpected number of attention calls or of heads, another mask pattern, an
            unsupported option such as soft-capping, or remaining positions.
    """
    with without_positions(model.base_model, structure):
        calls = record_attention_calls(model, structure)
    kind = model.config.model_type
    layers = structure.layers_of(model.base_model)
    attentions = [layer.get_submodule(structure.attention) for layer in layers]
    if [id(call.module) for call in calls] != [id(module) for module in attentions]:
        raise ValueError(
            f"`model` must call AttentionInterface once in each of its {len(attentions)} layers, "
            f"but {kind!r} calls it {len(calls)} times."
        )
    for layer, call in enumerate(calls):
        where = f"layer {layer} of {kind!r}"
        sizes = (call.query.size(1), call.query.size(3), call.value.size(3))
        expected = (model.config.num_attention_heads, structure.head_dim, structure.head_dim)
        if sizes != expected:
            raise ValueError(
                f"`model` must have (num_heads, head_dim, size of values) = {expected}, but "
                f"{where} has {sizes}."
            )
        if unknown := sorted(call.options.keys() - _KNOWN):
            raise ValueError(
                f"`{unknown[0]}` of the attention is not supported and must be None, but {where} "
                f"has {call.options[unknown[0]]}."
            )
        _check_pattern(call.mask, structure.causal, longest, where)
        for name in ("query", "key", "value"):
            x: Tensor = getattr(call, name)
            if not x.is_meta and not is_close(x, x[:, :, :1]):  # constant along T
                raise ValueError(
                    "`model` must have no positions beside its RoPE or position table, but "
                    f"{name} differs between equal tokens in {where}."
                )
    return calls


def _check_pattern(mask: Any, causal: bool, longest: int, where: str) -> None:
    last = max(longest - 1, 1)
    if not callable(mask):
        raise ValueError(
            f"`model` must make its masks by AttentionMaskInterface, but {where} does not."
        )
    if not (_sees(mask, last, 0) and _sees(mask, 0, 0) and _sees(mask, 0, last) != causal):
        kind = "causal" if causal else "bidirectional"
        raise ValueError(
            f"`model` must attend to all {'earlier ' if causal else ''}tokens, as {kind} attention "
            f"does, but {where} has another mask within {longest} positions."
        )


def is_close(x: Tensor, expected: Tensor) -> bool:
    """Return whether tensors agree up to rounding, relative to the largest value."""
    error = (x - expected).abs().max()
    return bool(error <= _TOLERANCE.get(x.dtype, 0.05) * expected.abs().max())


def check_projections(
    model: PreTrainedModel, structure: ModelStructure, calls: list[AttentionCall]
) -> None:
    """Check that the detected projections reproduce the model's queries and keys.

    Raises:
        IncompatibleEncodingError: the model changes them afterwards, or a matrix has another
            layout.
    """
    for layer, call in zip(structure.layers_of(model.base_model), calls, strict=True):
        heads = call.query.size(1)
        expected = (call.query, call.key.repeat_interleave(heads // call.key.size(1), 1))
        for which, x in enumerate(expected):
            projected = structure.project(layer, which, call.hidden)
            projected = projected.unflatten(-1, (heads, -1)).transpose(1, 2)
            if projected.shape != x.shape or not is_close(projected, x):
                raise IncompatibleEncodingError(
                    "an encoding with `projections=content` projects positions with the model's "
                    f"own matrices, but a {type(call.module).__name__} changes queries or keys "
                    "after their projection; `projections=own` would work."
                )
