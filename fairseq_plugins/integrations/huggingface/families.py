"""Detection of the modules of a transformers model that a position encoding replaces."""

import sys
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

# Tested model types, whose folders the Auto classes load.
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

# Names of the projections of queries and keys in attention modules.
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
class ModelStructure:
    """Names and properties of a base model's modules that position encodings act on."""

    layers: str  # the list of layers
    attention: str  # the attention module inside a layer
    rotation: str | None  # the module of its own RoPE
    table: str | None  # its own table of absolute positions
    first_row: int  # row of position 0 in that table
    head_dim: int  # D
    causal: bool  # whether a query sees earlier keys only
    dropout: float  # of attention weights
    has_types: bool  # whether there are embeddings of token types

    def layers_of(self, base: nn.Module) -> nn.ModuleList:
        """Return the list of layers of a base model."""
        layers = base.get_submodule(self.layers)
        assert isinstance(layers, nn.ModuleList)
        return layers

    def project(self, layer: nn.Module, which: int, x: Tensor) -> Tensor:
        """Project a layer's input to queries (`which` 0) or keys (1): (..., C) -> (..., H D).

        Modules are looked up at every call, since adapters may replace them. Keys that several
        query heads share are repeated for each.
        """
        attention: Any = layer.get_submodule(self.attention)
        if hasattr(attention, "query_key_value"):  # each head has a query, a key and a value
            parts = attention.query_key_value(x).unflatten(-1, (-1, 3, self.head_dim))
            return parts[..., which, :].flatten(-2)
        if hasattr(attention, "c_attn"):  # all queries, then all keys, then all values
            return attention.c_attn(x).split(attention.embed_dim, -1)[which]
        names = next(names for names in _SEPARATE if hasattr(attention, names[0]))
        heads = getattr(attention, names[which])(x).unflatten(-1, (-1, self.head_dim))
        if which == 1:
            heads = heads.repeat_interleave(getattr(attention, "num_key_value_groups", 1), -2)
        for norms in _NORMS:
            if (norm := getattr(attention, norms[which], None)) is not None:
                heads = norm(heads)
        return heads.flatten(-2)

    def max_positions(self, config: Any) -> int:
        """Return the longest sequence that the model is configured for."""
        return int(config.max_position_embeddings) - self.first_row


def _attentions(module: nn.Module) -> list[str]:
    """Return the names of the attention modules inside a module."""
    known = (*(names[0] for names in _SEPARATE), *_FUSED)
    return [
        name
        for name, child in module.named_modules()
        if any(isinstance(getattr(child, projection, None), nn.Module) for projection in known)
    ]


def _layers(model: PreTrainedModel) -> tuple[str, str]:
    """Return the names of the list of layers and of the attention in a layer.

    Raises:
        ValueError: no list of layers with one attention module each.
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
        f"transformers' AttentionInterface, but {model.config.model_type!r} does not; tested "
        f"types are {', '.join(FAMILIES)}."
    )


def _positions(model: PreTrainedModel, layers: str) -> tuple[str | None, str | None]:
    """Return the names of the RoPE module and of the position table.

    Raises:
        ValueError: the model has neither or both.
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
    """Check options of a configuration or attention that would be ignored.

    Raises:
        ValueError: an option has an unsupported value.
    """
    for name, value in _FIXED.items():
        found = getattr(owner, name, value)
        if name == "sliding_window" and found == 0:  # Qwen2-MoE without a window
            continue
        if found != value:
            raise ValueError(f"`{name}` of the model must be {value}, but is {found} instead.")


def _check_attention(attention: Any, dim: int) -> None:
    """Check that an attention computes the softmax of scaled products and nothing else.

    Raises:
        ValueError: an option would be ignored.
    """
    _check_options(attention)
    if not isinstance(getattr(attention, "is_causal", None), bool):
        raise ValueError(f"`is_causal` must be True or False in {type(attention).__name__}.")
    scaling = getattr(attention, "scaling", None)
    if scaling is not None and abs(scaling - dim**-0.5) > 1e-6:
        raise ValueError(
            f"`scaling` of the model must be {dim**-0.5:g}, which is head_dim={dim} ** -0.5, but "
            f"is {scaling:g} instead."
        )


def find_structure(model: PreTrainedModel) -> ModelStructure:
    """Find the modules of a model that position encodings act on.

    Raises:
        ValueError: unsupported structure or option.
    """
    _check_options(model.config)
    layers, name = _layers(model)
    rotation, table = _positions(model, layers)
    base, config = model.base_model, model.config
    own = getattr(config, "head_dim", None)
    dim = int(own or config.hidden_size // config.num_attention_heads)
    stack = base.get_submodule(layers).children()
    attentions: list[Any] = [layer.get_submodule(name) for layer in stack]
    for attention in attentions:
        _check_attention(attention, dim)
    return ModelStructure(
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
    """Replacement of a model's own RoPE: cosine and sine of angle zero."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return two tensors (1, 1, 1) for broadcasting."""
        return x.new_ones(1, 1, 1), x.new_zeros(1, 1, 1)


def skip_no_rotation(attention: nn.Module) -> None:
    """Make transformers' rotation return queries and keys as they are after ``NoRotation``.

    It would multiply by one and add zeros in every layer. The function is replaced in the module of
    the attention's class; models with their own RoPE, whose cosines have more than one feature, are
    rotated as before.
    """
    module: Any = sys.modules[type(attention).__module__]
    rotate = getattr(module, "apply_rotary_pos_emb", None)
    if rotate is None or hasattr(rotate, "skips_no_rotation"):
        return

    @wraps(rotate)
    def apply(q: Tensor, k: Tensor, cos: Tensor, *args: Any, **options: Any) -> Any:
        return (q, k) if cos.size(-1) == 1 else rotate(q, k, cos, *args, **options)

    apply.skips_no_rotation = True  # type: ignore[attr-defined]
    module.apply_rotary_pos_emb = apply


class NoTable(nn.Module):
    """Replacement of a model's own position table that adds nothing.

    Args:
        first_row: row of position 0 in the replaced table.
    """

    def __init__(self, first_row: int) -> None:
        super().__init__()
        self.first_row = first_row

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return a zero-dimensional zero for broadcasting."""
        return torch.zeros((), device=position_ids.device)
