"""GLUE: its nine tasks, their files and their metrics.

`python -m fairseq_plugins.glue evaluate` scores a fine-tuned checkpoint.
"""

BATCH_SIZE = 64  # of evaluation
