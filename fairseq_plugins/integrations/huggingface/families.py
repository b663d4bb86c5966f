"""Find what a position encoding acts on in a model of transformers, by its structure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

Projections = tuple[nn.Module, nn.Module]

# Model types whose folders the Auto classes load; each is tested. Others need `register`.
FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "phi",
    "gpt_neox",
    "gpt2",
    "bert",
    "roberta",
    "distilbert",
    "electra",
)

# Projections of queries and keys in an attention module.
_SEPARATE = (("q_proj", "k_proj"), ("query", "key"), ("q_lin", "k_lin"))
_FUSED = ("query_key_value", "c_attn")
_NORMS = (("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"))
_DROPOUTS = ("attention_dropout", "attn_dropout", "dropout")
_TABLES = ("position_embeddings", "wpe")

# Options with one supported value: other values change the attention itself.
_FIXED: dict[str, object] = {
    "add_cross_attention": False,
    "attn_logit_softcapping": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "sliding_window": None,
}


@dataclass(frozen=True)
class Family:
    """Names of the modules of a base model that position encodings act on.

    Attributes:
        layers: the list of layers.
        attention: the attention module inside a layer.
        rotation: the module of its own RoPE; None where it has none.
        table: its own table of absolute positions; None where it has none.
        first_row: row of position 0 in that table.
        head_dim: D.
        causal: whether a query sees earlier keys alone.
        dropout: probability of dropout of the attention weights.
        has_types: whether there are embeddings of token types.
    """

    layers: str
    attention: str
    rotation: str | None
    table: str | None
    first_row: int
    head_dim: int
    causal: bool
    dropout: float
    has_types: bool

    def project(self, layer: nn.Module) -> Projections:
        """Return the projections (C -> H D) of the queries and of the keys of a layer."""
        return _projections(layer.get_submodule(self.attention), self.head_dim)

    def max_positions(self, config: Any) -> int:
        """Return the longest sequence that the model is configured for."""
        return int(config.max_position_embeddings) - self.first_row


class Part(nn.Module):
    """One projection out of a fused or shared matrix.

    Args:
        whole: the module of the matrix.
        rows: maps that module to the weight (H D, C) and bias (H D,) of the projection.
        in_features: C.
    """

    def __init__(
        self,
        whole: nn.Module,
        rows: Callable[[Any], tuple[Tensor, Tensor | None]],
        in_features: int,
    ) -> None:
        super().__init__()
        self.whole, self.rows, self.in_features = whole, rows, in_features

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., H D)."""
        return F.linear(x, *self.rows(self.whole))


class NormedProjection(nn.Module):
    """A projection followed by a norm of each head, as in Qwen3.

    Args:
        projection: C -> H D.
        norm: of the D features of a head.
        head_dim: D.
    """

    def __init__(self, projection: Any, norm: nn.Module, head_dim: int) -> None:
        super().__init__()
        self.projection, self.norm, self.head_dim = projection, norm, head_dim
        self.in_features = projection.in_features

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., H D)."""
        heads = self.projection(x).unflatten(-1, (-1, self.head_dim))
        return self.norm(heads).flatten(-2)


def _repeated(linear: Any, *, groups: int, dim: int) -> tuple[Tensor, Tensor | None]:
    """Repeat each head of keys for every head of queries that shares it."""

    def repeat(rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, dim)).repeat_interleave(groups, 0).flatten(0, 1)

    return repeat(linear.weight), None if linear.bias is None else repeat(linear.bias)


def _interleaved(linear: Any, *, which: int, dim: int) -> tuple[Tensor, Tensor | None]:
    """Select from a matrix with queries, keys and values of each head together."""

    def part(rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, 3, dim))[:, which].flatten(0, 1)

    return part(linear.weight), None if linear.bias is None else part(linear.bias)


def _beside(conv: Any, *, which: int, width: int) -> tuple[Tensor, Tensor | None]:
    """Select from a transposed matrix with all queries, then all keys, then all values."""
    span = slice(which * width, (which + 1) * width)
    return conv.weight[:, span].T, conv.bias[span]


def _projections(attention: Any, dim: int) -> Projections:
    if hasattr(attention, "query_key_value"):
        linear = attention.query_key_value
        parts = (partial(_interleaved, which=which, dim=dim) for which in (0, 1))
        queries, keys = (Part(linear, rows, linear.in_features) for rows in parts)
        return queries, keys
    if hasattr(attention, "c_attn"):
        conv, width = attention.c_attn, attention.embed_dim
        parts = (partial(_beside, which=which, width=width) for which in (0, 1))
        queries, keys = (Part(conv, rows, width) for rows in parts)
        return queries, keys
    names = next(names for names in _SEPARATE if hasattr(attention, names[0]))
    pair = [getattr(attention, name) for name in names]
    groups = getattr(attention, "num_key_value_groups", 1)
    if groups > 1:
        pair[1] = Part(pair[1], partial(_repeated, groups=groups, dim=dim), pair[1].in_features)
    for norms in _NORMS:
        if getattr(attention, norms[0], None) is not None:
            pair = [
                NormedProjection(projection, getattr(attention, norm), dim)
                for projection, norm in zip(pair, norms, strict=True)
            ]
    return pair[0], pair[1]


def _attentions(module: nn.Module) -> list[str]:
    """Names of the attention modules inside a module."""
    known = (*(names[0] for names in _SEPARATE), *_FUSED)
    return [
        name
        for name, child in module.named_modules()
        if any(isinstance(getattr(child, projection, None), nn.Module) for projection in known)
    ]


def _layers(model: PreTrainedModel) -> tuple[str, str]:
    """Names of the list of layers and of the attention in a layer.

    Raises:
        ValueError: no list whose layers have one attention module each.
    """
    if getattr(model, "_supports_attention_backend", False):
        for name, module in model.base_model.named_modules():
            if isinstance(module, nn.ModuleList) and len(module):
                found = [_attentions(layer) for layer in module]
                if len(found[0]) == 1 and all(names == found[0] for names in found):
                    return name, found[0][0]
    raise ValueError(
        "`model` must have layers with one self-attention each, with projections "
        f"{', '.join('/'.join(names) for names in _SEPARATE)} or {' or '.join(_FUSED)}, called by "
        f"transformers' AttentionInterface, but {model.config.model_type!r} has not; tested are "
        f"{', '.join(FAMILIES)}."
    )


def _positions(model: PreTrainedModel, layers: str) -> tuple[str | None, str | None]:
    """Names of the module of RoPE and of the table of positions.

    Raises:
        ValueError: neither or both are there, so that positions come from elsewhere.
    """
    named = {
        name: module
        for name, module in model.base_model.named_modules()
        if not name.startswith(f"{layers}.")
    }
    rotations = [n for n, m in named.items() if hasattr(m, "inv_freq") or isinstance(m, NoRotation)]
    tables = [
        name
        for name, module in named.items()
        if name.rpartition(".")[2] in _TABLES and isinstance(module, (nn.Embedding, NoTable))
    ]
    if len(rotations) + len(tables) != 1:
        raise ValueError(
            "`model` must have either one RoPE or one table of positions for all layers, but "
            f"{model.config.model_type!r} has {len(rotations)} and {len(tables)} instead."
        )
    return next(iter(rotations), None), next(iter(tables), None)


def _first_row(table: nn.Module | None) -> int:
    if isinstance(table, NoTable):
        return table.first_row
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else padding + 1


def _dropout(attention: nn.Module) -> float:
    found = next((getattr(attention, name) for name in _DROPOUTS if hasattr(attention, name)), 0.0)
    return float(found.p if isinstance(found, nn.Dropout) else found)


def _check_options(owner: Any) -> None:
    """Refuse options, of a configuration or an attention, that would be ignored.

    Raises:
        ValueError: one has another value.
    """
    for name, value in _FIXED.items():
        found = getattr(owner, name, value)
        if found != value:
            raise ValueError(f"`{name}` of the model must be {value}, but is {found} instead.")


def _check_attention(attention: Any, dim: int) -> None:
    """Refuse an attention that does more than softmax of scaled products.

    Raises:
        ValueError: an option of it would be ignored.
    """
    _check_options(attention)
    if not isinstance(getattr(attention, "is_causal", None), bool):
        raise ValueError(f"`is_causal` must be True or False in {type(attention).__name__}.")
    scaling = getattr(attention, "scaling", None)
    if scaling is not None and abs(scaling - dim**-0.5) > 1e-6:
        raise ValueError(
            f"`scaling` of the model must be {dim**-0.5:g}, one over the root of {dim} features "
            f"of a head, but is {scaling:g} instead."
        )


def family_of(model: PreTrainedModel) -> Family:
    """Find the modules of a model that position encodings act on.

    Raises:
        ValueError: the structure is not known here, or an option has another value.
    """
    _check_options(model.config)
    layers, name = _layers(model)
    rotation, table = _positions(model, layers)
    base, config = model.base_model, model.config
    stack = base.get_submodule(layers)
    assert isinstance(stack, nn.ModuleList)
    own = getattr(config, "head_dim", None)
    dim = int(own or config.hidden_size // config.num_attention_heads)
    attentions: list[Any] = [layer.get_submodule(name) for layer in stack]
    for attention in attentions:
        _check_attention(attention, dim)
    return Family(
        layers=layers,
        attention=name,
        rotation=rotation,
        table=table,
        first_row=_first_row(None if table is None else base.get_submodule(table)),
        head_dim=dim,
        causal=bool(attentions[0].is_causal),
        dropout=_dropout(attentions[0]),
        has_types=any(n.endswith("token_type_embeddings") for n, _ in base.named_modules()),
    )


class NoRotation(nn.Module):
    """Replacement of a model's own RoPE: cosine and sine of angle zero for every feature."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return two tensors (1, 1, 1), which are broadcast."""
        return x.new_ones(1, 1, 1), x.new_zeros(1, 1, 1)


class NoTable(nn.Module):
    """Replacement of a model's own table of positions: nothing is added.

    Args:
        first_row: row of position 0 in the table that was there.
    """

    def __init__(self, first_row: int) -> None:
        super().__init__()
        self.first_row = first_row

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return a zero of no dimensions, which is broadcast."""
        return torch.zeros((), device=position_ids.device)
