"""fairseq's cross-entropy criterions without storing logits.

``blockwise_cross_entropy``, ``blockwise_label_smoothed_cross_entropy`` and ``blockwise_masked_lm``
compute the losses of ``cross_entropy`` and so on from features, a block of tokens at a time.
"""

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from torch import Tensor

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.kernels import linear_best_words, linear_cross_entropy
from fairseq_plugins.modules.output_layer import (
    LogitInputs,
    decoder_logit_inputs,
    masked_logit_inputs,
)

PLAIN, SMOOTHED = "blockwise_cross_entropy", "blockwise_label_smoothed_cross_entropy"


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


@register_criterion(PLAIN, dataclass=CrossEntropyCriterionConfig)
class BlockwiseCrossEntropy(FeatureCriterion, CrossEntropyCriterion):
    """fairseq's ``cross_entropy`` computed blockwise from decoder features."""

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss twice: to differentiate and to log."""
        features, weight, bias = decoder_logit_inputs(model, net_output[0], PLAIN)
        target = model.get_targets(sample, net_output).flatten()
        return linear_cross_entropy(
            features, weight, target, bias, ignore_index=self.padding_idx, reduce=reduce
        )


@register_criterion(SMOOTHED, dataclass=LabelSmoothedCrossEntropyCriterionConfig)
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
        return decoder_logit_inputs(model, net_output[0][:, skipped:], SMOOTHED), target


@register_criterion("blockwise_masked_lm", dataclass=MaskedLmConfig)
class BlockwiseMaskedLm(MaskedLmLoss):
    """fairseq's ``masked_lm`` computed blockwise from the features of masked tokens.

    Raises:
        OptionError: ``tpu`` is set, for which fairseq computes the logits of all tokens.
    """

    def __init__(self, cfg: MaskedLmConfig, task: Any) -> None:
        if cfg.tpu:
            raise OptionError(
                "`tpu` must be off with the criterion blockwise_masked_lm, but is on; use the "
                "criterion masked_lm."
            )
        super().__init__(cfg, task)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Return the loss summed over masked tokens, their number, and logs."""
        net_output = model(**features_only(sample)["net_input"])
        target = model.get_targets(sample, net_output)
        masked = target.ne(self.padding_idx)
        features, weight, bias = masked_logit_inputs(model, net_output[0], masked)
        loss, _ = linear_cross_entropy(features, weight, target[masked], bias)
        sample_size = masked.int().sum()
        logs = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": sample_size,
        }
        return loss, sample_size, logs
