"""Criterion ``blockwise_label_smoothed_cross_entropy``: label smoothing without storing logits."""

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor

from fairseq_plugins.criterions.features import FeatureCriterion
from fairseq_plugins.kernels import linear_best_words, linear_cross_entropy
from fairseq_plugins.modules.output_layer import LogitInputs, decoder_logit_inputs

NAME = "blockwise_label_smoothed_cross_entropy"


@register_criterion(NAME, dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class BlockwiseLabelSmoothedCrossEntropy(FeatureCriterion, LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy`` computed blockwise from decoder features.

    ``--report-accuracy`` costs one more product with the output embedding.
    """

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return smoothed and plain loss; without ``reduce`` (N, 1) each, as fairseq's."""
        (features, weight, bias), target = self._prediction(model, net_output, sample)
        loss, nll = linear_cross_entropy(
            features,
            weight,
            target,
            bias,
            ignore_index=self.padding_idx,
            label_smoothing=self.eps,
            reduce=reduce,
        )
        return (loss, nll) if reduce else (loss.unsqueeze(1), nll.unsqueeze(1))

    def compute_accuracy(
        self, model: Any, net_output: Any, sample: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Return the number of correctly predicted tokens and of all tokens."""
        prediction, target = self._prediction(model, net_output, sample)
        counts = target.ne(self.padding_idx)
        best = linear_best_words(*prediction)
        return (best.eq(target) & counts).sum(), counts.sum()

    def _prediction(
        self, model: Any, net_output: Any, sample: dict[str, Any]
    ) -> tuple[LogitInputs, Tensor]:
        skipped = self.ignore_prefix_size
        target = model.get_targets(sample, net_output)[:, skipped:].flatten()
        return decoder_logit_inputs(model, net_output[0][:, skipped:], NAME), target
