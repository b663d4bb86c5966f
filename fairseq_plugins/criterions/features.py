"""How a criterion asks a model for features in place of logits."""

from typing import Any

from torch import Tensor


def features_only(sample: dict[str, Any]) -> dict[str, Any]:
    """A batch whose ``net_input`` asks for that; the batch that is given stays as it is."""
    return {**sample, "net_input": {**sample["net_input"], "features_only": True}}


class FeatureCriterion:
    """Before one of fairseq's criterions: its ``compute_loss`` is given features."""

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch, summed over tokens unless ``reduce`` is off; sample size; logs.

        Raises:
            OptionError: a model whose output is an adaptive softmax, or no linear layer.
        """
        result: tuple[Tensor, int, dict[str, Any]] = super().forward(  # type: ignore[misc]
            model, features_only(sample), reduce
        )
        return result
