"""Analyses of trained models: attention, position vectors and prediction.

Here is what the commands' options are by default, so that their help needs no PyTorch.
"""

WORDS = 300  # the BERT paper's footnote 9
LENGTH = 128  # positions that the BERT paper's figures show
