"""Analyses of trained models: attention, position vectors and prediction.

The default values of command options are here, so that `--help` needs no PyTorch.
"""

WORDS = 300  # the BERT paper's footnote 9
LENGTH = 128  # positions that the BERT paper's figures show
