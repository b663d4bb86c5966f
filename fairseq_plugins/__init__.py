"""Position encodings and linear attention for fairseq.

Models, tasks and criterions are registered with fairseq when fairseq loads this package through
``--user-dir fairseq_plugins``, or if fairseq was imported before it. Other programs load only the
modules they import: encodings, kernels and attentions are plain PyTorch. To build models through
fairseq after importing this package first, import ``fairseq_plugins.registration``.
"""

import logging
import sys

from fairseq_plugins.common.cpu import is_fairseq_command

# Silence fairseq's warning at import about tensorboardX, which only an unused task needs.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

if is_fairseq_command() or sys.modules.get("fairseq") is not None:
    from fairseq_plugins import registration as registration

if is_fairseq_command():
    from fairseq_plugins.common.cpu import prepare_cpu
    from fairseq_plugins.common.short_errors import shorten_errors

    prepare_cpu()
    shorten_errors()
