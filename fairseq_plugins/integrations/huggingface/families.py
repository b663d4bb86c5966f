"""Where the models of transformers have what a position encoding acts on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
)

Projections = tuple[nn.Module, nn.Module]


def _zero(config: PreTrainedConfig) -> int:
    return 0


def _after_padding(config: Any) -> int:
    return int(config.pad_token_id) + 1


@dataclass(frozen=True)
class Family:
    """A family of models whose layers call transformers' ``AttentionInterface``.

    Attributes:
        config: of the family.
        words: the token embeddings in the base model.
        layers: the list of layers there.
        project: the projections (C -> C) of queries and of keys of a layer.
        dropout: the option for that of the attention's weights.
        rotation: what makes the base model's own RoPE; None where it has none.
        has_share: whether that rotates the ``partial_rotary_factor`` of the features, or all.
        table: its own table of absolute positions; None where it has none.
        first_row: of that table, the row of position 0.
        has_types: whether there are token types, looked up by position where they are left out.
        fixed: what options have to be, since nothing here is like another value.
    """

    config: type[PreTrainedConfig]
    words: str
    layers: str
    project: Callable[[Any], Projections]
    dropout: str
    rotation: str | None = None
    has_share: bool = False
    table: str | None = None
    first_row: Callable[[Any], int] = _zero
    has_types: bool = False
    fixed: tuple[tuple[str, object], ...] = ()

    def is_causal(self, config: Any) -> bool:
        """Whether a query of a model with this configuration sees earlier keys alone."""
        return bool(config.is_decoder) if self.has_types else True

    def head_dim(self, config: Any) -> int:
        """D."""
        own = getattr(config, "head_dim", None)
        return int(own or config.hidden_size // config.num_attention_heads)

    def max_positions(self, config: Any) -> int:
        """Longest sequence that the model is configured for."""
        return int(config.max_position_embeddings) - self.first_row(config)


class Part(nn.Module):
    """One of the projections that a model has in a single matrix.

    Args:
        whole: the module of the matrix.
        rows: of its weight and bias, those of the part: (H D, C) and (H D,).
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


def _repeated(linear: Any, *, groups: int, dim: int) -> tuple[Tensor, Tensor | None]:
    """Each head of keys once for every head of queries that shares it."""

    def repeat(rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, dim)).repeat_interleave(groups, 0).flatten(0, 1)

    return repeat(linear.weight), None if linear.bias is None else repeat(linear.bias)


def _interleaved(linear: Any, *, which: int, dim: int) -> tuple[Tensor, Tensor | None]:
    """Of a matrix with queries, keys and values of each head together."""

    def part(rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, 3, dim))[:, which].flatten(0, 1)

    return part(linear.weight), None if linear.bias is None else part(linear.bias)


def _beside(conv: Any, *, which: int, width: int) -> tuple[Tensor, Tensor | None]:
    """Of a transposed matrix with all queries, then all keys, then all values."""
    span = slice(which * width, (which + 1) * width)
    return conv.weight[:, span].T, conv.bias[span]


def _llama(layer: Any) -> Projections:
    attention = layer.self_attn
    keys, groups = attention.k_proj, attention.num_key_value_groups
    if groups > 1:
        rows = partial(_repeated, groups=groups, dim=attention.head_dim)
        keys = Part(keys, rows, keys.in_features)
    return attention.q_proj, keys


def _gpt_neox(layer: Any) -> Projections:
    linear, dim = layer.attention.query_key_value, layer.attention.head_size
    parts = (partial(_interleaved, which=which, dim=dim) for which in (0, 1))
    queries, keys = (Part(linear, rows, linear.in_features) for rows in parts)
    return queries, keys


def _gpt2(layer: Any) -> Projections:
    conv, width = layer.attn.c_attn, layer.attn.embed_dim
    parts = (partial(_beside, which=which, width=width) for which in (0, 1))
    queries, keys = (Part(conv, rows, width) for rows in parts)
    return queries, keys


def _bert(layer: Any) -> Projections:
    attention = layer.attention.self
    return attention.query, attention.key


FAMILIES: dict[str, Family] = {
    "llama": Family(
        LlamaConfig,
        words="embed_tokens",
        layers="layers",
        project=_llama,
        dropout="attention_dropout",
        rotation="rotary_emb",
    ),
    "gpt_neox": Family(
        GPTNeoXConfig,
        words="embed_in",
        layers="layers",
        project=_gpt_neox,
        dropout="attention_dropout",
        rotation="rotary_emb",
        has_share=True,
    ),
    "gpt2": Family(
        GPT2Config,
        words="wte",
        layers="h",
        project=_gpt2,
        dropout="attn_pdrop",
        table="wpe",
        fixed=(
            ("scale_attn_weights", True),
            ("scale_attn_by_inverse_layer_idx", False),
            ("add_cross_attention", False),
        ),
    ),
    "bert": Family(
        BertConfig,
        words="embeddings.word_embeddings",
        layers="encoder.layer",
        project=_bert,
        dropout="attention_probs_dropout_prob",
        table="embeddings.position_embeddings",
        has_types=True,
        fixed=(("add_cross_attention", False),),
    ),
    "roberta": Family(
        RobertaConfig,
        words="embeddings.word_embeddings",
        layers="encoder.layer",
        project=_bert,
        dropout="attention_probs_dropout_prob",
        table="embeddings.position_embeddings",
        first_row=_after_padding,
        has_types=True,
        fixed=(("add_cross_attention", False),),
    ),
}


def family_of(model: PreTrainedModel) -> Family:
    """The family of a model, by its configuration.

    Raises:
        ValueError: none of those that are known here, or an option with another value.
    """
    config = model.config
    found = next((f for f in FAMILIES.values() if isinstance(config, f.config)), None)
    if found is None:
        raise ValueError(
            f"`model` must be of one of the families {', '.join(FAMILIES)}, but is of "
            f"{config.model_type!r} instead."
        )
    for name, value in found.fixed:
        if getattr(config, name, value) != value:
            raise ValueError(
                f"`{name}` of the model must be {value}, but is {getattr(config, name)} instead."
            )
    return found


class NoRotation(nn.Module):
    """In place of a model's own RoPE: the cosine and sine of no angle, for every feature."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Two tensors (1, 1, 1), which are broadcast."""
        return x.new_ones(1, 1, 1), x.new_zeros(1, 1, 1)


class NoTable(nn.Module):
    """In place of a model's own table of positions: nothing is added."""

    def forward(self, position_ids: Tensor) -> Tensor:
        """A zero of no dimensions, which is broadcast."""
        return torch.zeros((), device=position_ids.device)
