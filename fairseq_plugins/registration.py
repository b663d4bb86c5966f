"""Registration of models, tasks and criterions with fairseq, on import."""

from fairseq_plugins import criterions as criterions
from fairseq_plugins import models as models
from fairseq_plugins import tasks as tasks
from fairseq_plugins.common.checkpoints import allow_readable, check_checkpoints_on_loading
from fairseq_plugins.modules.choices import pickle_choices
from fairseq_plugins.modules.fused_adam import replace_missing_apex
from fairseq_plugins.modules.lengths import refuse_dropped_blocks
from fairseq_plugins.modules.numpy_compat import restore_numpy_compat

allow_readable()
check_checkpoints_on_loading()
refuse_dropped_blocks()
pickle_choices()
replace_missing_apex()
restore_numpy_compat()
