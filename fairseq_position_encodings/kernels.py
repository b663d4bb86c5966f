"""Attention as functions of tensors: the public names of `fairseq_plugins.kernels`."""

from fairseq_plugins.kernels import *  # noqa: F403
from fairseq_plugins.kernels import __all__ as __all__
