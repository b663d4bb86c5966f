"""Forward pre-hooks that pass positions, cache and encodings to the layers of a model."""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache

from fairseq_plugins.attention.base import draw_positions
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.integrations.huggingface.cache import prepare_cache
from fairseq_plugins.integrations.huggingface.passes import (
    IMPLEMENTATION,
    PASS_KEYWORD,
    ForwardPass,
    resolve_positions,
    to_padding_mask,
)
from fairseq_plugins.integrations.huggingface.settings import KEY

CACHE_NAMES = ("cache", "past_key_values")  # keyword of ``forward``, newest first


def before_layer(
    layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, index: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Forward pre-hook of a layer after the first: encode its input."""
    at = kwargs.get(PASS_KEYWORD)
    if not isinstance(at, ForwardPass) or index not in at.inputs:
        return None
    x, *others = args
    return (at.embed(index, x), *others), kwargs


def before_model(
    base: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, names: tuple[str, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward pre-hook of the base model: compute positions, cache and encoded input."""
    given = {**kwargs, **dict(zip(names, args, strict=False))}
    modules = getattr(base, KEY)
    structure = modules.structure
    cache_name = _rename_cache(given, names)
    tokens, x = given.get("input_ids"), given.get("inputs_embeds")
    _check_implementation(base.config)
    _check_arguments(given, modules, cache_name)
    source = tokens if tokens is not None else x
    if source is None or (tokens is not None and x is not None):
        raise ValueError("either `input_ids` or `inputs_embeds` must be given, and not both.")
    has_cache = given[cache_name] is not None
    length, cache = source.size(1), _cache(base, modules, given, cache_name)
    seen = 0 if cache is None else cache.get_seq_length()
    padding = to_padding_mask(given.get("attention_mask"), seen + length)
    first = structure.first_row
    positions, documents = resolve_positions(
        given.get("position_ids"), padding, seen, length, source.device, first=first
    )
    if documents is not None:  # keys of a packed row are not cached
        if has_cache:
            raise _cache_error("`position_ids` of packed documents, which restart")
        cache, given[cache_name], given["use_cache"] = None, None, False
    recomputes = base.training and _checkpoints(base)
    at = ForwardPass(
        attentions=modules.attentions,
        inputs=dict(modules.encodings_of_inputs()),
        positions=draw_positions(modules.position_sampler, positions, training=base.training),
        padding_mask=None if padding is None else padding[:, seen:],
        states=None if cache is None else cache.layers,
        documents=documents,
        shared=None if recomputes else SharedPass(),
        need_weights=bool(given.get("output_attentions")),
        seed=modules.generation_seed,
    )
    given[PASS_KEYWORD] = at
    if 0 in at.inputs:
        x = base.get_input_embeddings()(tokens) if x is None else x
        given["input_ids"], given["inputs_embeds"] = None, at.embed(0, x, tokens)
    # The model's own table must use the same positions.
    table_positions = positions if documents is None else documents.positions.unsqueeze(0)
    given["position_ids"] = table_positions.expand(source.size(0), -1) + first
    if structure.has_types and given.get("token_type_ids") is None:
        given["token_type_ids"] = torch.zeros(
            source.shape[:2], dtype=torch.long, device=source.device
        )
    if cache_name not in names:  # encoders such as DistilBERT
        del given[cache_name], given["use_cache"]
    return (), given


def _rename_cache(given: dict[str, Any], names: tuple[str, ...]) -> str:
    """Store the cache under the keyword that ``forward`` uses, and return that keyword.

    transformers 5.24 renamed ``past_key_values`` to ``cache``; callers may use either.

    Raises:
        ValueError: two caches are given.
    """
    values = [given.pop(name) for name in CACHE_NAMES if name in given]
    caches = [value for value in values if value is not None]
    if len(caches) > 1:
        raise ValueError("either `cache` or `past_key_values` must be given, and not both.")
    name = next((name for name in CACHE_NAMES if name in names), CACHE_NAMES[0])
    given[name] = caches[0] if caches else None
    return name


def _check_implementation(config: Any) -> None:
    """Check that the attentions are still the installed ones, with the position encoding."""
    found = config._attn_implementation
    if found != IMPLEMENTATION:
        raise ValueError(
            f"`attn_implementation` of the model must be {IMPLEMENTATION!r}, since another one has "
            f"no position encoding, but is {found!r} instead; `output_attentions=True` of a call "
            "needs no other."
        )


def _check_arguments(given: dict[str, Any], modules: Any, cache_name: str) -> None:
    """Check for arguments that the installed attention would ignore."""
    is_causal = given.get("is_causal")
    if is_causal is not None and bool(is_causal) != modules.causal:
        raise ValueError(
            f"`is_causal` must be {modules.causal}, as the encodings were built, but is "
            f"{is_causal} instead."
        )
    if given.get("encoder_hidden_states") is not None:
        raise ValueError("`encoder_hidden_states` must be left out: there is no cross-attention.")
    if given.get("cu_seq_lens_q") is not None and given.get("position_ids") is None:
        raise ValueError(
            "`position_ids` must be given beside `cu_seq_lens_q`, since packed documents are "
            "recognised by positions that start again, but are not."
        )
    if not given.get("output_attentions"):
        return
    if given[cache_name] is not None:
        raise ValueError("`output_attentions` must be False with a cache, but is True.")
    given["use_cache"] = False


def _cache_error(other: str) -> ValueError:
    return ValueError(f"`past_key_values` must be left out with {other}, but is given.")


def _checkpoints(base: Any) -> bool:
    """Return whether activations are recomputed in the backward pass."""
    return any(getattr(module, "gradient_checkpointing", False) for module in base.modules())


def _cache(base: Any, modules: Any, given: dict[str, Any], cache_name: str) -> Cache | None:
    """Return the cache for this pass, or None; in training only a given cache is used."""
    cache, use = given[cache_name], given.get("use_cache")
    use = getattr(base.config, "use_cache", False) if use is None else use
    if cache is not None and not modules.causal:
        raise _cache_error("an attention that is not causal")
    if cache is not None and base.training and _checkpoints(base):
        raise _cache_error("gradient checkpointing in training")
    if cache is None and (base.training or not modules.causal):
        use = False
    given["use_cache"] = bool(use)
    if cache is None and not use:
        given[cache_name] = None
        return None
    given[cache_name] = prepare_cache(
        cache,
        len(modules.attentions),
        croppable=modules.croppable,
        inputs=modules.reads_neighbours,
    )
    return given[cache_name]
