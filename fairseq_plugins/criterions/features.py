"""How a criterion asks a model for features in place of logits."""

from typing import Any


def features_only(sample: dict[str, Any]) -> dict[str, Any]:
    """A batch whose ``net_input`` asks for that; the batch that is given stays as it is."""
    return {**sample, "net_input": {**sample["net_input"], "features_only": True}}
