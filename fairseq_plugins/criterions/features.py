"""Mixin for criterions that work on features instead of logits."""

from typing import Any

from torch import Tensor


def features_only(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a batch that asks the model for features."""
    return {**sample, "net_input": {**sample["net_input"], "features_only": True}}


class FeatureCriterion:
    """Mixin before a fairseq criterion; its ``compute_loss`` receives features."""

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, summed over tokens with ``reduce``, the sample size, and logs.

        Raises:
            OptionError: the model's output is an adaptive softmax or not a linear layer.
        """
        result: tuple[Tensor, int, dict[str, Any]] = super().forward(  # type: ignore[misc]
            model, features_only(sample), reduce
        )
        return result
