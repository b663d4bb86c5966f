"""Tasks, registered with fairseq on import."""

from fairseq_plugins.tasks import pe_masked_lm as pe_masked_lm
from fairseq_plugins.tasks import pe_sentence_prediction as pe_sentence_prediction
from fairseq_plugins.tasks import squad as squad
