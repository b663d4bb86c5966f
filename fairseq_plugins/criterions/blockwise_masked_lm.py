"""Criterion ``blockwise_masked_lm``: fairseq's ``masked_lm`` without the logits."""

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
    """The same loss, gradients and logs, computed from the features of the masked tokens.

    Raises:
        OptionError: ``tpu``, where fairseq's computes the logits of all tokens.
    """

    def __init__(self, cfg: MaskedLmConfig, task: Any) -> None:
        if cfg.tpu:
            raise OptionError(
                "`tpu` must be off with the criterion blockwise_masked_lm, but is on; "
                "the criterion masked_lm goes with it."
            )
        super().__init__(cfg, task)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Loss of a batch, always summed over its masked tokens; their number; logs."""
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
