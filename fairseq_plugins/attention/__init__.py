"""Attentions in plain PyTorch, each with any position encoding that its mathematics allows.

The fairseq adapter is ``fairseq_plugins.attention.multihead``, imported by name only, so that
this package works without fairseq.
"""

from fairseq_plugins.attention.base import Attention
from fairseq_plugins.attention.compatibility import (
    ATTENTIONS,
    build_attention,
    check_compatible,
)
from fairseq_plugins.attention.complex_layer import ComplexEncoderLayer
from fairseq_plugins.attention.documents import Documents, attend_documents
from fairseq_plugins.attention.feature_maps import FEATURE_MAPS
from fairseq_plugins.attention.floor import floored_share
from fairseq_plugins.attention.layer import PositionalMultiheadAttention
from fairseq_plugins.attention.linear import LinearAttention
from fairseq_plugins.attention.positions import make_positions
from fairseq_plugins.attention.softmax import SoftmaxAttention

__all__ = [
    "ATTENTIONS",
    "FEATURE_MAPS",
    "Attention",
    "ComplexEncoderLayer",
    "Documents",
    "LinearAttention",
    "PositionalMultiheadAttention",
    "SoftmaxAttention",
    "attend_documents",
    "build_attention",
    "check_compatible",
    "floored_share",
    "make_positions",
]
