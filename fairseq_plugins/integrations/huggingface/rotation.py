"""Translation of a model's own RoPE into options of the encoding ``rope``."""

from typing import Any, get_args

from transformers import PreTrainedModel

from fairseq_plugins.encodings.lrpe import Rotated, rotated_count
from fairseq_plugins.integrations.huggingface.families import FAMILIES, find_structure

_PARTIAL = ("gpt_neox", "phi")  # whose RoPE reads `partial_rotary_factor`


def own_rotation(model: PreTrainedModel) -> dict[str, Any]:
    """Return the options with which ``rope`` reproduces the model's own RoPE.

    Args:
        model: model of a type in ``FAMILIES`` with RoPE.

    Raises:
        ValueError: no RoPE; scaled RoPE, for which see ``rope_interpolated``, ``rope_ntk`` and
            ``yarn``; or an unsupported number of rotated features.
    """
    parameters, structure = getattr(model.config, "rope_parameters", None), find_structure(model)
    kind = model.config.model_type.removeprefix("positional_")
    if kind not in FAMILIES:  # others may pair features differently
        raise ValueError(f"`model` must be of {', '.join(FAMILIES)}, but is of {kind!r} instead.")
    if structure.rotation is None or not parameters:
        raise ValueError(
            f"`model` must have RoPE, but a model of {model.config.model_type!r} has none."
        )
    scaled = parameters.get("rope_type", "default")
    if scaled != "default":
        raise ValueError(f"`rope_type` of the model must be 'default', but is {scaled!r} instead.")
    dim = structure.head_dim
    share = parameters.get("partial_rotary_factor", 1.0) if kind in _PARTIAL else 1.0
    # transformers rounds down; for an odd count its angles match no even number of features.
    count = int(dim * share)
    words = {rotated_count(word, dim): word for word in reversed(get_args(Rotated))}
    if count not in words:
        raise ValueError(
            f"`partial_rotary_factor` of the model must rotate one of {sorted(words)} of the "
            f"{dim} features of a head, but is {share}, which are {count}."
        )
    base = float(parameters["rope_theta"])
    return {"base": base, "layout": "half_split", "rotated": words[count]}
