"""Criterions, registered with fairseq on import."""

from fairseq_plugins.criterions import blockwise_cross_entropy as blockwise_cross_entropy
from fairseq_plugins.criterions import (
    blockwise_label_smoothed_cross_entropy as blockwise_label_smoothed_cross_entropy,
)
from fairseq_plugins.criterions import blockwise_masked_lm as blockwise_masked_lm
from fairseq_plugins.criterions import hidden_state_distillation as hidden_state_distillation
from fairseq_plugins.criterions import squad as squad
