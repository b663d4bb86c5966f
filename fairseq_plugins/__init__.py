"""Position encodings and linear attention for fairseq.

Models, tasks and criterions register with fairseq where it loads this package, through
``--user-dir fairseq_plugins``, and where a program has imported fairseq before. Any other program
gets what it imports and no more: the encodings, kernels and attentions are plain PyTorch. What
imports this package first and builds models through fairseq then imports
``fairseq_plugins.registration``.
"""

import logging
import sys

from fairseq_plugins.common.cpu import is_fairseq_command

# fairseq advises at every import to install tensorboardX, for a task that is not used here.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

if is_fairseq_command() or sys.modules.get("fairseq") is not None:
    from fairseq_plugins import registration as registration

if is_fairseq_command():
    from fairseq_plugins.common.cpu import prepare_cpu
    from fairseq_plugins.common.short_errors import shorten_errors

    prepare_cpu()
    shorten_errors()
