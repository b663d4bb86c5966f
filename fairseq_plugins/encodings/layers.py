"""The encodings of a stack of layers, one per layer or shared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq_plugins.encodings.base import (
    LOGIT_HOOKS,
    TRANSFORM_HOOKS,
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
)
from fairseq_plugins.encodings.compose import Compose, find_position_sampler
from fairseq_plugins.encodings.protocols import Repositions
from fairseq_plugins.encodings.registry import build_one, contexts_of, split_options


@dataclass(frozen=True)
class ModelEncodings:
    """The encodings of one stack of layers.

    Attributes:
        inputs: for each layer the encoding of its input, or None; the input of layer 0 are the
            token embeddings.
        layers: for each layer the encoding of its attention, or None.
        position_sampler: the encoding that draws positions for all of them in training, or None.
    """

    inputs: list[PositionEncoding | None]
    layers: list[PositionEncoding | None]
    position_sampler: Repositions | None = None


def build_model_encodings(
    name: str, num_layers: int, context: EncodingContext, options: Mapping[str, Any]
) -> ModelEncodings:
    """Build an encoding for all layers of a stack, shared where its class says so.

    Args:
        name: as for ``build_encoding``.
        num_layers: attention layers of the stack.
        context: of the stack.
        options: as for ``build_encoding``.

    Raises:
        ValueError: as ``build_encoding``.
        IncompatibleEncodingError: an encoding of the inputs does not support causal models;
            encodings inside an attention are checked by the attention.
    """
    columns: list[list[PositionEncoding]] = []
    split = split_options(name, options)
    contexts = contexts_of(split, context)
    for part, part_options in split.items():
        first = build_one(part, contexts[part], part_options)
        later = (_later(part, first, part_options) for _ in range(num_layers - 1))
        columns.append([first, *later])
    embedding = [(c, c[0].embed_layers(num_layers)) for c in columns if "embed" in c[0].hooks]
    attending = [c for c in columns if c[0].hooks & (TRANSFORM_HOOKS | LOGIT_HOOKS)]
    for column, _ in embedding:
        encoding = column[0]
        if encoding.context.causal and encoding.causal_refusal:
            raise IncompatibleEncodingError(
                f"a causal model cannot use the encoding {encoding.label!r}: "
                f"{encoding.causal_refusal}. Another encoding or a bidirectional model would work."
            )
    return ModelEncodings(
        [_compose([c[i] for c, at in embedding if i in at]) for i in range(num_layers)],
        [_compose([c[i] for c in attending]) for i in range(num_layers)],
        find_position_sampler(column[0] for column in columns),
    )


def _later(part: str, first: PositionEncoding, options: Mapping[str, Any]) -> PositionEncoding:
    """Return a later layer's instance: the first layer's if shared, else a new one."""
    if first.shared_across_layers:
        return first
    later = build_one(part, first.context, options)
    later.share_with(first)
    return later


def _compose(parts: list[PositionEncoding]) -> PositionEncoding | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return Compose(parts)
