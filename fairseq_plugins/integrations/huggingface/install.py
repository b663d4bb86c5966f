"""Construction and installation of position encodings and attentions in a model."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
from fairseq_plugins.encodings.complex_order import ComplexOrder
from fairseq_plugins.integrations.huggingface.families import (
    ModelStructure,
    NoRotation,
    NoTable,
    find_structure,
    skip_no_rotation,
)
from fairseq_plugins.integrations.huggingface.hooks import before_layer, before_model
from fairseq_plugins.integrations.huggingface.passes import IMPLEMENTATION, attend, no_mask
from fairseq_plugins.integrations.huggingface.settings import KEY, EncodingSettings

AttentionInterface.register(IMPLEMENTATION, attend)
AttentionMaskInterface.register(IMPLEMENTATION, no_mask)


class PositionModules(nn.Module):
    """Attentions and input encodings that are installed in a base model.

    ``shared`` maps the additional names of parameters that layers share to their first name.

    Args:
        model: the base model or a model around it.
        settings: settings of the encoding and attention.

    Raises:
        ValueError: unknown names or options, or values that do not fit the model.
        IncompatibleEncodingError: the attention or the model does not support the encoding.
    """

    def __init__(self, model: PreTrainedModel, settings: EncodingSettings) -> None:
        super().__init__()
        structure, base, config = find_structure(model), model.base_model, model.config
        self.structure = structure
        self.generation_seed: int | None = None  # seed of draws during `generate`
        layers = structure.layers_of(base)
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
                encoding.bind_projections(*(partial(structure.project, layer, i) for i in (0, 1)))
        self.shared = _shared_parameters(self)
        # transformers leaves these names out of files.
        self._tied_weights_keys = self.shared

    @property
    def reads_projections(self) -> bool:
        """Return whether an encoding projects positions with the model's own matrices."""
        found = (getattr(module, "projections", "own") for module in self.modules())
        return any(projections == "content" for projections in found)

    @property
    def draws(self) -> bool:
        """Return whether an encoding draws random numbers in every pass."""
        return any(isinstance(module, Stochastic) for module in self.modules())

    @property
    def has_words(self) -> bool:
        """Return whether an encoding has a parameter for each word."""
        return any(isinstance(module, ComplexOrder) for module in self.modules())

    @property
    def reads_neighbours(self) -> bool:
        """Return whether an input encoding depends on neighbouring tokens."""
        return any(encoding.embed_window > 1 for _, encoding in self.encodings_of_inputs())

    def encodings_of_inputs(self) -> Iterator[tuple[int, PositionEncoding]]:
        """Yield input encodings with their layer's index."""
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
    """Check that a model of transformers supports encodings of its input."""
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
                    "`decoder=queries`, which runs the last layer twice over fixed keys. Use "
                    "`decoder=inputs`, or fairseq's pe_roberta."
                )


def _shared_parameters(modules: nn.Module) -> dict[str, str]:
    """Map the names of shared parameters to their first name."""
    first: dict[int, str] = {}
    same = {}
    for name, parameter in modules.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            same[name] = first[id(parameter)]
    return same


@contextmanager
def _float32_on_cpu() -> Iterator[None]:
    """Make new tensors float32 on the CPU, even inside transformers' meta or half contexts."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


def build(model: PreTrainedModel, settings: EncodingSettings) -> PositionModules:
    """Build the modules for a model, in float32 on the CPU.

    Raises:
        ValueError: as `PositionModules`, or no position table to keep.
    """
    with _float32_on_cpu():
        modules = PositionModules(model, settings)
    table = modules.structure.table
    if settings.keep_absolute and (
        table is None or isinstance(model.base_model.get_submodule(table), NoTable)
    ):
        raise ValueError(
            "`keep_absolute` must be False for a model without a table of positions of its own, "
            "but is True."
        )
    longest = modules.structure.max_positions(model.config)
    if settings.keep_absolute and settings.max_positions > longest:
        raise ValueError(
            f"`max_positions` must be at most the {longest} of the model's own table, which "
            f"`keep_absolute` keeps, but is {settings.max_positions}."
        )
    return modules


def installed_modules(model: PreTrainedModel) -> PositionModules | None:
    """Return the modules installed in a model; None without."""
    modules = getattr(model.base_model, KEY, None)
    return modules if isinstance(modules, PositionModules) else None


def install(model: PreTrainedModel, modules: PositionModules, settings: EncodingSettings) -> None:
    """Install modules in place of a model's own position encoding, and record their settings."""
    structure, base = modules.structure, model.base_model
    is_first = installed_modules(model) is None
    modules.train(base.training)
    setattr(base, KEY, modules)
    if structure.rotation is not None:
        base.set_submodule(structure.rotation, NoRotation())
    if structure.table is not None and not settings.keep_absolute:
        base.set_submodule(structure.table, NoTable(structure.first_row))
    model.config._attn_implementation = IMPLEMENTATION
    setattr(model.config, KEY, asdict(settings))
    # Files store shared parameters once, under the first name; the loader must know the others.
    model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=True)
    if is_first:
        names = tuple(inspect.signature(base.forward).parameters)
        base.register_forward_pre_hook(partial(before_model, names=names), with_kwargs=True)
        for index, layer in enumerate(structure.layers_of(base)):
            attention: Any = layer.get_submodule(structure.attention)
            attention.layer_idx = index
            skip_no_rotation(attention)
            if index:  # `before_model` encodes the input of the first layer
                hook = partial(before_layer, index=index)
                layer.register_forward_pre_hook(hook, with_kwargs=True)


def rebuild_modules(model: PreTrainedModel, settings: EncodingSettings) -> None:
    """Rebuild the modules of a loaded model, and copy the loaded weights into them.

    transformers creates modules without values and assigns only the weights in the file, so
    derived tables and buffers would stay uninitialised.
    """
    loaded = installed_modules(model)
    assert loaded is not None
    fresh = build(model, settings)
    fresh.load_state_dict(loaded.state_dict())
    weights = model.base_model.get_submodule(fresh.structure.layers).parameters()
    fresh.to(device=next(weights).device, dtype=model.dtype)
    setattr(model.base_model, KEY, fresh.train(loaded.training))
