"""Criterion ``blockwise_masked_lm``: fairseq's ``masked_lm`` without storing logits."""

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from torch import Tensor

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.criterions.features import features_only
from fairseq_plugins.kernels import linear_cross_entropy
from fairseq_plugins.modules.output_layer import masked_logit_inputs


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
