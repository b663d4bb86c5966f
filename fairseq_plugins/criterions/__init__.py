"""Criterions, registered with fairseq on import."""

from fairseq_plugins.criterions import blockwise as blockwise
from fairseq_plugins.criterions import hidden_state_distillation as hidden_state_distillation
from fairseq_plugins.criterions import squad as squad
