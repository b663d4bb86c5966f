"""Whether a row can be under an attention."""

from collections.abc import Mapping
from typing import Any

from fairseq_plugins.attention import check_compatible
from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.experiments.base import Experiment


def incompatibility(
    experiment: Experiment, model: Mapping[str, Any]
) -> IncompatibleEncodingError | None:
    """Why an attention of a composed model cannot have its encoding; None where it can."""
    for stack in experiment.stacks(model):
        try:
            check_compatible(
                stack.attention_type,
                stack.position_encoding,
                stack.options,
                causal=stack.causal,
                num_heads=stack.num_heads,
                head_dim=stack.head_dim,
            )
        except IncompatibleEncodingError as error:
            return error
    return None
