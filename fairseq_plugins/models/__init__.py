"""Models, registered with fairseq on import."""

from fairseq_plugins.models import pe_roberta as pe_roberta
from fairseq_plugins.models import pe_transformer as pe_transformer
from fairseq_plugins.models import pe_transformer_lm as pe_transformer_lm
