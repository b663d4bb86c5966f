"""Softmax and linear attention: the public names of `fairseq_plugins.attention`."""

from fairseq_plugins.attention import *  # noqa: F403
from fairseq_plugins.attention import __all__ as __all__
