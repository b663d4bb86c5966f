"""Share of queries whose linear-attention denominator is clamped."""

import torch

from fairseq_plugins.attention.linear import LinearAttention
from fairseq_plugins.attention.positions import make_positions
from fairseq_plugins.kernels.normalizer import norms


@torch.no_grad()
def floored_share(attention: LinearAttention, *, length: int = 512, seed: int = 1) -> float:
    """Compute the share of queries whose denominator is clamped, for random inputs.

    Features of queries and keys before the feature map are independent draws from N(0, 1); in a
    trained model they are not, so this compares encodings and predicts no model.

    Args:
        attention: the attention, with its encoding and its ``min_cosine`` or ``epsilon``.
        length: T, of one sequence with positions 0..T-1.
        seed: seed of the random inputs.

    Returns:
        A number in 0..1; 0 if the attention never clamps.
    """
    if not attention.min_cosine and attention.epsilon is None:
        return 0.0
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 1, attention.num_heads, length, attention.head_dim)
    q, k = torch.randn(shape, generator=generator, dtype=torch.float64)
    norm_q, norm_k = attention.denominator_features(q, k, make_positions(None, length))
    sizes = norms(norm_k, torch.float64)
    if attention.causal:
        sums, sizes = norm_k.cumsum(2), sizes.cumsum(2)
    else:
        sums, sizes = norm_k.sum(2, keepdim=True), sizes.sum(2, keepdim=True)
    denominators = (norm_q * sums).sum(-1, keepdim=True)
    if attention.epsilon is not None:
        return float((denominators < attention.epsilon).double().mean())
    floors = attention.min_cosine * norms(norm_q, torch.float64) * sizes
    return float((denominators.abs() < floors).double().mean())
