"""Criterion ``blockwise_cross_entropy``: fairseq's ``cross_entropy`` without storing logits."""

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from torch import Tensor

from fairseq_plugins.criterions.features import FeatureCriterion
from fairseq_plugins.kernels import linear_cross_entropy
from fairseq_plugins.modules.output_layer import decoder_logit_inputs


@register_criterion("blockwise_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class BlockwiseCrossEntropy(FeatureCriterion, CrossEntropyCriterion):
    """fairseq's ``cross_entropy`` computed blockwise from decoder features."""

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss twice: to differentiate and to log."""
        features, weight, bias = decoder_logit_inputs(
            model, net_output[0], "blockwise_cross_entropy"
        )
        target = model.get_targets(sample, net_output).flatten()
        return linear_cross_entropy(
            features, weight, target, bias, ignore_index=self.padding_idx, reduce=reduce
        )
