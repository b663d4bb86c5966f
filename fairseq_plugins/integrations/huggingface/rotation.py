"""A model's own RoPE in the words of ours."""

from typing import Any

from transformers import PreTrainedModel

from fairseq_plugins.integrations.huggingface.families import family_of

_SHARES = {1.0: "all", 0.5: "half", 0.25: "quarter"}


def own_rotation(model: PreTrainedModel) -> dict[str, Any]:
    """The options with which ``rope`` computes what the model's own RoPE does.

    Args:
        model: Llama or GPT-NeoX.

    Raises:
        ValueError: a model without RoPE, or with one that is stretched, which other names are
            (``rope_interpolated``, ``rope_ntk``, ``yarn``), or of another share of the features.
    """
    parameters = getattr(model.config, "rope_parameters", None)
    if family_of(model).rotation is None or not parameters:
        raise ValueError(
            f"`model` must have RoPE, but a model of {model.config.model_type!r} has none."
        )
    kind = parameters.get("rope_type", "default")
    if kind != "default":
        raise ValueError(f"`rope_type` of the model must be 'default', but is {kind!r} instead.")
    share = parameters.get("partial_rotary_factor", 1.0)
    if share not in _SHARES:
        raise ValueError(
            f"`partial_rotary_factor` of the model must be one of {list(_SHARES)}, but is {share}."
        )
    base = float(parameters["rope_theta"])
    return {"base": base, "layout": "half_split", "rotated": _SHARES[share]}
