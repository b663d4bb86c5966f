"""Models of transformers with another position encoding, under softmax or linear attention.

``docs/huggingface.md`` has examples.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from fairseq_plugins.common.extras import remedy

try:
    from transformers import PreTrainedModel
except ImportError as error:
    raise ImportError(
        f"`transformers` must be installed for models of Hugging Face: {remedy('hub')}"
    ) from error

from fairseq_plugins.integrations.huggingface.cache import StateLayer, state_bytes
from fairseq_plugins.integrations.huggingface.classes import become_positional, register
from fairseq_plugins.integrations.huggingface.families import FAMILIES, find_structure
from fairseq_plugins.integrations.huggingface.rotation import own_rotation
from fairseq_plugins.integrations.huggingface.settings import EncodingSettings

Model = TypeVar("Model", bound=PreTrainedModel)

__all__ = [
    "FAMILIES",
    "StateLayer",
    "own_rotation",
    "replace_position_encoding",
    "state_bytes",
]

register()


def replace_position_encoding(
    model: Model,
    position_encoding: str,
    *,
    attention: Literal["vanilla", "linear"] = "vanilla",
    attention_options: Mapping[str, Any] | None = None,
    keep_absolute: bool = False,
    max_positions: int | None = None,
    **options: Any,
) -> Model:
    """Swap the position encoding of a model of transformers, in place.

    Its own RoPE or table of positions is taken out. Its projections and all other weights stay,
    so that a pretrained model has to be trained further, unless the encoding computes the same as
    its own (``own_rotation``).

    Args:
        model: one of ``FAMILIES``, or of the same structure, with any head.
        position_encoding: a name of ``ENCODINGS``, or several joined by ``+``.
        attention: ``vanilla``, or ``linear``, with which ``generate`` keeps a state of constant
            size instead of a list of keys.
        attention_options: the attention's, as ``feature_map`` of linear.
        keep_absolute: leave the model's own table of positions beside it (as GPT-2 or BERT).
        max_positions: longest sequence that the encoding is built for; the model's by default.
        options: the encoding's own, as for ``build_encoding``.

    Returns:
        The same model, whose class is now a subclass of what it was: ``save_pretrained`` and the
        Auto classes' ``from_pretrained`` keep the encoding.

    Raises:
        ValueError: another structure, an unknown name or option, or a value that does not fit.
        IncompatibleEncodingError: the attention or the model cannot have the encoding.
    """
    settings = EncodingSettings(
        name=position_encoding,
        attention=attention,
        options=options,
        attention_options=dict(attention_options or {}),
        keep_absolute=keep_absolute,
        max_positions=max_positions or find_structure(model).max_positions(model.config),
    )
    device, is_training = model.device, model.training
    become_positional(model, settings)
    return model.to(device).train(is_training)
