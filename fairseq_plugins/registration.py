"""Registration of models, tasks and criterions with fairseq, on import."""

from fairseq_plugins import criterions as criterions
from fairseq_plugins import models as models
from fairseq_plugins import tasks as tasks
from fairseq_plugins.common.checkpoints import allow_readable, check_what_fairseq_reads
from fairseq_plugins.modules.fused_adam import replace_missing_apex

allow_readable()
check_what_fairseq_reads()
replace_missing_apex()
