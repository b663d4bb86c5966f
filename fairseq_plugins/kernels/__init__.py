"""Pure functions on tensors. Shapes: B batch, H heads, T queries, S keys, D features, M values."""

from fairseq_plugins.kernels.cross_entropy import linear_best_words, linear_cross_entropy
from fairseq_plugins.kernels.linear import LinearState, causal_linear_attention, linear_attention
from fairseq_plugins.kernels.naive import naive_linear_attention, naive_linear_cross_entropy

__all__ = [
    "LinearState",
    "causal_linear_attention",
    "linear_attention",
    "linear_best_words",
    "linear_cross_entropy",
    "naive_linear_attention",
    "naive_linear_cross_entropy",
]
