"""Position encodings and linear attention in models of transformers.

See ``docs/huggingface.md`` for examples.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from fairseq_plugins.common.extras import install_command

try:
    from transformers import PreTrainedModel
except ImportError as error:
    raise ImportError(
        f"`transformers` must be installed for Hugging Face models: {install_command('hub')}"
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
    """Replace the position encoding of a model of transformers, in place.

    Its own RoPE or position table is removed. All other weights stay, so a pretrained model needs
    further training unless the new encoding computes the same as its own (``own_rotation``).

    Args:
        model: model of a type in ``FAMILIES`` or of the same structure, with any head.
        position_encoding: a name of ``ENCODINGS``, or several joined by ``+``.
        attention: ``vanilla``, or ``linear``, with which ``generate`` keeps a state of constant
            size instead of all keys and values.
        attention_options: options of the attention, such as ``feature_map``.
        keep_absolute: keep the model's own position table as well (GPT-2, BERT).
        max_positions: longest sequence to build the encoding for; by default the model's.
        options: options of the encoding, as for ``build_encoding``.

    Returns:
        The same model with a subclass of its class; ``save_pretrained`` and ``from_pretrained`` of
        the Auto classes keep the encoding.

    Raises:
        ValueError: unsupported structure, unknown name or option, or invalid value.
        IncompatibleEncodingError: the attention or the model does not support the encoding.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            "`model` must be a model of transformers, a PreTrainedModel, but is a "
            f"{type(model).__name__} instead."
        )
    longest = find_structure(model).max_positions(model.config)
    settings = EncodingSettings(
        name=position_encoding,
        attention=attention,
        options=options,
        attention_options=dict(attention_options or {}),
        keep_absolute=keep_absolute,
        max_positions=longest if max_positions is None else max_positions,
    )
    device, is_training = model.device, model.training
    become_positional(model, settings)
    return model.to(device).train(is_training)
