"""Install position encodings and attentions in a model of transformers."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import (
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
    Stochastic,
    build_model_encodings,
)
from fairseq_plugins.integrations.huggingface.families import (
    ModelStructure,
    NoRotation,
    NoTable,
    find_structure,
    live_projections,
)
from fairseq_plugins.integrations.huggingface.hooks import before_layer, before_model
from fairseq_plugins.integrations.huggingface.passes import attend, no_mask
from fairseq_plugins.integrations.huggingface.settings import KEY, EncodingSettings

IMPLEMENTATION = "fairseq_plugins"  # the name in transformers' AttentionInterface

AttentionInterface.register(IMPLEMENTATION, attend)
AttentionMaskInterface.register(IMPLEMENTATION, no_mask)


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

    def __init__(self, model: PreTrainedModel, settings: EncodingSettings) -> None:
        super().__init__()
        structure, base, config = find_structure(model), model.base_model, model.config
        self.structure = structure
        self.generation_seed: int | None = None  # of the draws of a running `generate`
        layers = base.get_submodule(structure.layers)
        assert isinstance(layers, nn.ModuleList)
        context = _context(structure, config, settings)
        built = build_model_encodings(settings.name, len(layers), context, settings.options)
        _check_inputs(built.inputs, base.get_input_embeddings(), config.hidden_size)
        options = dict(settings.attention_options)
        if settings.attention == "vanilla":
            options.setdefault("dropout", structure.dropout)
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
        self.position_sampler = built.position_sampler
        self.causal, self.croppable = context.causal, settings.attention == "vanilla"
        for layer, encoding in zip(layers, built.layers, strict=True):
            if encoding is not None:
                encoding.bind_projections(*live_projections(structure, layer))
        self.shared = _shared_parameters(self)
        # transformers reads here which names it may leave out of a file.
        self._tied_weights_keys = self.shared

    @property
    def reads_projections(self) -> bool:
        """Tell whether an encoding projects positions with the model's own matrices."""
        found = (getattr(module, "projections", "own") for module in self.modules())
        return any(projections == "content" for projections in found)

    @property
    def draws(self) -> bool:
        """Tell whether an encoding draws random numbers in every pass."""
        return any(isinstance(module, Stochastic) for module in self.modules())

    @property
    def looks_back(self) -> bool:
        """Whether what acts on the input also looks at earlier tokens."""
        return any(encoding.embed_window > 1 for _, encoding in self.encodings_of_inputs())

    def encodings_of_inputs(self) -> Iterator[tuple[int, PositionEncoding]]:
        """By the layer's index."""
        for index, encoding in self.inputs.items():
            assert isinstance(encoding, PositionEncoding)
            yield int(index), encoding


def _context(structure: ModelStructure, config: Any, settings: EncodingSettings) -> EncodingContext:
    return EncodingContext(
        num_heads=config.num_attention_heads,
        head_dim=structure.head_dim,
        embed_dim=config.hidden_size,
        max_positions=settings.max_positions,
        causal=structure.causal,
        vocab_size=config.vocab_size,
        begins_with_cls=not structure.causal,
        token_std=config.initializer_range,
    )


def _check_inputs(inputs: list[PositionEncoding | None], words: Any, width: int) -> None:
    """Refuse encodings of the input that a model of transformers cannot have."""
    if inputs[0] is not None and words.embedding_dim != width:
        raise IncompatibleEncodingError(
            f"`embedding_size` of the model must be {width}, its `hidden_size`, for an encoding "
            f"that is added to the embeddings, but is {words.embedding_dim} instead."
        )
    for encoding in inputs:
        for part in encoding.parts if encoding is not None else ():
            if getattr(part, "query_passes", 0):
                raise IncompatibleEncodingError(
                    f"a model of transformers cannot use the encoding {part.label!r} with "
                    "`decoder=queries`: its last layer runs twice over keys that stay. "
                    "deberta_emd with `decoder=inputs` or fairseq's pe_roberta would work."
                )


def _shared_parameters(modules: nn.Module) -> dict[str, str]:
    """Names of parameters that are another's: the later -> the first."""
    first: dict[int, str] = {}
    same = {}
    for name, parameter in modules.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            same[name] = first[id(parameter)]
    return same


@contextmanager
def _float32_on_cpu() -> Iterator[None]:
    """Float32 on the CPU, also where transformers builds a model without memory or in half."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


def build(model: PreTrainedModel, settings: EncodingSettings) -> PositionModules:
    """The modules of a model, in float32 on the CPU."""
    with _float32_on_cpu():
        return PositionModules(model, settings)


def installed_modules(model: PreTrainedModel) -> PositionModules | None:
    """What a model was given; None where nothing."""
    modules = getattr(model.base_model, KEY, None)
    return modules if isinstance(modules, PositionModules) else None


def check_table(model: PreTrainedModel, *, keep_absolute: bool) -> None:
    """Refuse to keep what is not there.

    Raises:
        ValueError: an own table is to stay that the model does not have.
    """
    name = find_structure(model).table
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
    structure, base = modules.structure, model.base_model
    is_first = installed_modules(model) is None
    modules.train(base.training)
    setattr(base, KEY, modules)
    if structure.rotation is not None:
        setattr(base, structure.rotation, NoRotation())
    if structure.table is not None and not keep_absolute:
        parent, _, name = structure.table.rpartition(".")
        setattr(base.get_submodule(parent), name, NoTable(structure.first_row))
    model.config._attn_implementation = IMPLEMENTATION
    if is_first:
        names = tuple(inspect.signature(base.forward).parameters)
        base.register_forward_pre_hook(partial(before_model, names=names), with_kwargs=True)
        layers = base.get_submodule(structure.layers)
        assert isinstance(layers, nn.ModuleList)
        # The first layer's input are the token embeddings, which the model's hook has made.
        for index, layer in enumerate(layers):
            attention: Any = layer.get_submodule(structure.attention)
            attention.layer_idx = index
            if index == 0:
                continue
            layer.register_forward_pre_hook(partial(before_layer, index=index), with_kwargs=True)


def rebuild_modules(model: PreTrainedModel, settings: EncodingSettings) -> None:
    """Build a loaded model's modules anew around the weights that were loaded.

    transformers assigns weights one by one, and what cannot be in a file it leaves empty: tables,
    what follows from a drawn permutation. Here all is made as it is made first, and then loaded.
    """
    loaded = installed_modules(model)
    assert loaded is not None
    fresh = build(model, settings)
    fresh.load_state_dict(loaded.state_dict())
    fresh.to(next(model.base_model.get_submodule(fresh.structure.layers).parameters()).device)
    setattr(model.base_model, KEY, fresh.train(loaded.training))
