"""Encodings and attentions inside a model of transformers, and the hooks that lead to them."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache

from fairseq_plugins.attention import build_attention
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import (
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
    build_model_encodings,
)
from fairseq_plugins.integrations.huggingface.cache import StateLayer, with_states
from fairseq_plugins.integrations.huggingface.families import (
    Family,
    NoRotation,
    NoTable,
    family_of,
)
from fairseq_plugins.integrations.huggingface.passes import (
    PASS,
    Pass,
    attend,
    drawn,
    padding_of,
    place,
)
from fairseq_plugins.integrations.huggingface.settings import KEY, Settings

IMPLEMENTATION = "fairseq_plugins"  # the name in transformers' AttentionInterface

AttentionInterface.register(IMPLEMENTATION, attend)


class PositionModules(nn.Module):
    """What a base model is given: an attention for each layer, and what acts on its inputs.

    Parameters that layers share have several names; ``shared`` says which are the same.

    Args:
        model: the base model or one around it.
        settings: what to build.

    Raises:
        ValueError: unknown names or options, or values that do not fit the model.
        IncompatibleEncodingError: the attention or the model cannot have the encoding.
    """

    def __init__(self, model: PreTrainedModel, settings: Settings) -> None:
        super().__init__()
        family, base, config = family_of(model), model.base_model, model.config
        layers = base.get_submodule(family.layers)
        assert isinstance(layers, nn.ModuleList)
        context = _context(family, config, settings)
        built = build_model_encodings(settings.name, len(layers), context, settings.options)
        _check_inputs(built.inputs)
        options = dict(settings.attention_options)
        if settings.attention == "vanilla":
            options.setdefault("dropout", float(getattr(config, family.dropout)))
        self.attentions = nn.ModuleList(
            build_attention(
                settings.attention,
                encoding,
                num_heads=context.num_heads,
                head_dim=context.head_dim,
                causal=context.causal,
                **options,
            )
            for encoding in built.layers
        )
        self.inputs = nn.ModuleDict(
            {str(i): encoding for i, encoding in enumerate(built.inputs) if encoding is not None}
        )
        self.placing = built.placing
        self.causal, self.croppable = context.causal, settings.attention == "vanilla"
        for layer, encoding in zip(layers, built.layers, strict=True):
            if encoding is not None:
                encoding.bind_projections(*family.project(layer))
        self.shared = _same(self)
        # transformers reads here which names it may leave out of a file.
        self._tied_weights_keys = self.shared

    @property
    def looks_back(self) -> bool:
        """Whether what acts on the input also looks at earlier tokens."""
        return any(encoding.embed_window > 1 for _, encoding in self.encodings_of_inputs())

    def encodings_of_inputs(self) -> Iterator[tuple[int, PositionEncoding]]:
        """By the layer's index."""
        for index, encoding in self.inputs.items():
            assert isinstance(encoding, PositionEncoding)
            yield int(index), encoding


def _context(family: Family, config: Any, settings: Settings) -> EncodingContext:
    causal = family.is_causal(config)
    return EncodingContext(
        num_heads=config.num_attention_heads,
        head_dim=family.head_dim(config),
        embed_dim=config.hidden_size,
        max_positions=settings.max_positions,
        causal=causal,
        vocab_size=config.vocab_size,
        begins_with_cls=not causal,
        token_std=config.initializer_range,
    )


def _check_inputs(inputs: list[PositionEncoding | None]) -> None:
    for encoding in inputs:
        for part in encoding.parts if encoding is not None else ():
            if getattr(part, "query_passes", 0):
                raise IncompatibleEncodingError(
                    f"a model of transformers cannot use the encoding {part.label!r} with "
                    "`decoder=queries`: its last layer runs twice over keys that stay. "
                    "deberta_emd with `decoder=inputs` or fairseq's pe_roberta would work."
                )


def _same(modules: nn.Module) -> dict[str, str]:
    """Names of parameters that are another's: the later -> the first."""
    first: dict[int, str] = {}
    same = {}
    for name, parameter in modules.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            same[name] = first[id(parameter)]
    return same


@contextmanager
def _ordinary_tensors() -> Iterator[None]:
    """Float32 on the CPU, also where transformers builds a model without memory or in half."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


def build(model: PreTrainedModel, settings: Settings) -> PositionModules:
    """The modules of a model, in float32 on the CPU."""
    with _ordinary_tensors():
        return PositionModules(model, settings)


def modules_of(model: PreTrainedModel) -> PositionModules | None:
    """What a model was given; None where nothing."""
    modules = getattr(model.base_model, KEY, None)
    return modules if isinstance(modules, PositionModules) else None


def check_table(model: PreTrainedModel, *, keep_absolute: bool) -> None:
    """Refuse to keep what is not there.

    Raises:
        ValueError: an own table is to stay that the model does not have.
    """
    name = family_of(model).table
    if keep_absolute and (
        name is None or isinstance(model.base_model.get_submodule(name), NoTable)
    ):
        raise ValueError(
            "`keep_absolute` must be False for a model without a table of positions of its own, "
            "but is True."
        )


def install(model: PreTrainedModel, modules: PositionModules, *, keep_absolute: bool) -> None:
    """Put modules into a model in place of its own positions.

    Raises:
        ValueError: an own table is to stay that the model does not have.
    """
    check_table(model, keep_absolute=keep_absolute)
    family, base = family_of(model), model.base_model
    is_first = modules_of(model) is None
    modules.train(base.training)
    setattr(base, KEY, modules)
    if family.rotation is not None:
        setattr(base, family.rotation, NoRotation())
    if family.table is not None and not keep_absolute:
        parent, _, name = family.table.rpartition(".")
        setattr(base.get_submodule(parent), name, NoTable())
    model.config._attn_implementation = IMPLEMENTATION
    if is_first:
        names = tuple(inspect.signature(base.forward).parameters)
        base.register_forward_pre_hook(partial(_before_model, names=names), with_kwargs=True)
        layers = base.get_submodule(family.layers)
        assert isinstance(layers, nn.ModuleList)
        # The first layer's input are the token embeddings, which the model's hook has made.
        for index, layer in enumerate(layers[1:], 1):
            layer.register_forward_pre_hook(partial(_before_layer, index=index), with_kwargs=True)


def renew(model: PreTrainedModel, settings: Settings) -> None:
    """Build a loaded model's modules anew around the weights that were loaded.

    transformers assigns weights one by one, and what cannot be in a file it leaves empty: tables,
    what follows from a drawn permutation. Here all is made as it is made first, and then loaded.
    """
    loaded = modules_of(model)
    assert loaded is not None
    fresh = build(model, settings)
    fresh.load_state_dict(loaded.state_dict())
    fresh.to(next(model.base_model.get_submodule(family_of(model).layers).parameters()).device)
    setattr(model.base_model, KEY, fresh.train(loaded.training))


def _before_layer(
    layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, index: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """A hook: what acts on a deeper layer's input."""
    at = kwargs.get(PASS)
    if not isinstance(at, Pass) or index not in at.inputs:
        return None
    x, *others = args
    return (at.embed(index, x), *others), kwargs


def _before_model(
    base: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, names: tuple[str, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A hook: positions, the cache's states and the embedded input of a pass."""
    given = {**kwargs, **dict(zip(names, args, strict=False))}
    modules, family = getattr(base, KEY), family_of(base)
    assert isinstance(modules, PositionModules)
    tokens, x = given.get("input_ids"), given.get("inputs_embeds")
    _refuse(given, modules)
    source = tokens if tokens is not None else x
    if source is None or (tokens is not None and x is not None):
        raise ValueError("either `input_ids` or `inputs_embeds` must be given, and not both.")
    length, cache = source.size(1), _cache(base, modules, given)
    seen = 0 if cache is None else cache.get_seq_length()
    padding = padding_of(given.get("attention_mask"), seen + length)
    first = family.first_row(base.config)
    positions, documents = place(
        given.get("position_ids"), padding, seen, length, source.device, first=first
    )
    recomputes = base.training and _checkpoints(base)
    at = Pass(
        attentions=modules.attentions,
        inputs=dict(modules.encodings_of_inputs()),
        positions=drawn(modules.placing, positions, training=base.training),
        padding_mask=None if padding is None else padding[:, seen:],
        states=None if cache is None else _states(cache),
        documents=documents,
        shared=None if recomputes else SharedPass(),
        need_weights=bool(given.get("output_attentions")),
    )
    given[PASS] = at
    _add_inputs(base, family, given, at, tokens, x)
    # Its own table and types count like the encodings.
    table_positions = positions if documents is None else documents.positions.unsqueeze(0)
    given["position_ids"] = table_positions.expand(source.size(0), -1) + first
    if family.has_types and given.get("token_type_ids") is None:
        given["token_type_ids"] = torch.zeros(
            source.shape[:2], dtype=torch.long, device=source.device
        )
    return (), given


def _refuse(given: dict[str, Any], modules: PositionModules) -> None:
    """What nobody here would honour."""
    is_causal = given.get("is_causal")
    if is_causal is not None and bool(is_causal) != modules.causal:
        raise ValueError(
            f"`is_causal` must be {modules.causal}, for which the encodings were built, but is "
            f"{is_causal} instead."
        )
    if given.get("encoder_hidden_states") is not None:
        raise ValueError("`encoder_hidden_states` must be left out: there is no cross-attention.")
    if not given.get("output_attentions"):
        return
    if given.get("past_key_values") is not None:
        raise ValueError("`output_attentions` must be False with a cache, but is True.")
    given["use_cache"] = False


def _checkpoints(base: Any) -> bool:
    """Whether activations are computed again in backward."""
    return any(getattr(module, "gradient_checkpointing", False) for module in base.modules())


def _cache(base: Any, modules: PositionModules, given: dict[str, Any]) -> Cache | None:
    """The cache of states of this pass; None where nothing is to be kept.

    In training none is made unless one is given: nobody decodes there.
    """
    cache, use = given.get("past_key_values"), given.get("use_cache")
    use = getattr(base.config, "use_cache", False) if use is None else use
    if not modules.causal or (base.training and (cache is None or _checkpoints(base))):
        use, cache = False, None
    given["use_cache"] = bool(use)
    if cache is None and not use:
        given["past_key_values"] = None
        return None
    given["past_key_values"] = with_states(
        cache,
        len(modules.attentions),
        croppable=modules.croppable,
        inputs=modules.looks_back,
    )
    states: Cache = given["past_key_values"]
    return states


def _states(cache: Cache) -> list[StateLayer]:
    return [layer for layer in cache.layers if isinstance(layer, StateLayer)]


def _add_inputs(
    base: nn.Module,
    family: Family,
    given: dict[str, Any],
    at: Pass,
    tokens: Tensor | None,
    x: Tensor | None,
) -> None:
    """The token embeddings with what acts on them, where something does."""
    if 0 not in at.inputs:
        return
    if x is None:
        x = base.get_submodule(family.words)(tokens)
    given["input_ids"], given["inputs_embeds"] = None, at.embed(0, x, tokens)
