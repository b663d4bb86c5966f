"""Criterion ``squad``: cross-entropy of an answer's first and last token."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from fairseq_plugins.common.option_field import option


@dataclass
class SquadCriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    span_head_name: str = option("squad", "name of the model's span head to train")


@register_criterion("squad", dataclass=SquadCriterionConfig)
class SquadCriterion(FairseqCriterion):
    """Mean of -log p(start) and -log p(end) over the tokens of each window (BERT, Sec. 4.2).

    Also logs `accuracy`, the percentage of windows with both predicted correctly.
    """

    def __init__(self, cfg: SquadCriterionConfig, task: Any) -> None:
        super().__init__(task)
        self.span_head_name = cfg.span_head_name

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, summed over windows with ``reduce``, their number, and logs."""
        logits, _ = model(**sample["net_input"], span_head_name=self.span_head_name)
        targets = torch.stack((sample["target"]["start"], sample["target"]["end"]), dim=1)
        log_probs = F.log_softmax(logits, dim=1, dtype=torch.float32)
        reduction = "sum" if reduce else "none"
        loss = 0.5 * F.nll_loss(log_probs, targets, reduction=reduction)
        loss = loss if reduce else loss.sum(1)
        is_correct = (logits.argmax(1) == targets).all(1)
        logs = {
            "loss": loss.detach(),
            "ncorrect": is_correct.sum().detach(),
            "ntokens": sample["ntokens"],
            "nsentences": targets.size(0),
            "sample_size": targets.size(0),
        }
        return loss, targets.size(0), logs

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log loss in bits and accuracy over all processes."""
        windows = sum(int(log["sample_size"]) for log in logging_outputs)
        loss = sum(float(log["loss"]) for log in logging_outputs)
        correct = sum(int(log["ncorrect"]) for log in logging_outputs)
        metrics.log_scalar("loss", loss / windows / math.log(2), windows, round=3)
        metrics.log_scalar("accuracy", 100.0 * correct / windows, windows, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
