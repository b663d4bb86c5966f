"""Position encodings and linear attention for fairseq.

Loaded by fairseq through ``--user-dir fairseq_plugins``; the encodings, kernels and attentions
also work in plain PyTorch, so fairseq's absence only leaves models, tasks and criterions
unregistered.
"""

import importlib.util

if all(importlib.util.find_spec(name) for name in ("torch", "fairseq")):
    from fairseq_plugins import criterions as criterions
    from fairseq_plugins import models as models
    from fairseq_plugins import tasks as tasks
    from fairseq_plugins.common.cpu import is_fairseq_command, prepare_cpu
    from fairseq_plugins.common.short_errors import shorten_errors

    if is_fairseq_command():
        prepare_cpu()
        shorten_errors()
