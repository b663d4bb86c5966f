"""Importing this module registers all that this package has with fairseq."""

from fairseq_plugins import criterions as criterions
from fairseq_plugins import models as models
from fairseq_plugins import tasks as tasks
from fairseq_plugins.common.checkpoints import allow_readable

allow_readable()
