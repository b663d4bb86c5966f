"""Sandwich: the products of sinusoidal position vectors as a bias."""

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.checks import check_at_least, check_even
from fairseq_plugins.encodings.frequencies import Device, fixed_sinusoids, sinusoidal_frequencies
from fairseq_plugins.encodings.pairwise import OffsetBias
from fairseq_plugins.encodings.position_bounds import is_recorded, with_end
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Constant, Formula, PositionTable


def sinusoidal_products(distances: Tensor, dim: int) -> Tensor:
    """Return p_s.p_t = sum_j cos(w_j n) of sinusoidal vectors at distance n: (N,) -> (N,)."""
    frequencies = sinusoidal_frequencies(dim, distances.device)
    return torch.cos(distances.unsqueeze(-1) * frequencies).sum(-1)


@register_encoding(
    "sandwich",
    known_as=("sinusoidal_bias",),
    summary="products of sinusoidal position vectors as a bias, at a scale per head",
    source="Sandwich (Chi et al. 2022, Dissecting Transformer Length Extrapolation)",
    formula="logit + H/(8h) sum_j cos((t - s) w_j), w_j = 10000^(-2j/n), h = 1..H",
)
class Sandwich(OffsetBias):
    """logits + p_s.p_t / c_h, added after scaling, with c_h = 8 h / H for head h = 1..H.

    Nothing is learned. The sum falls with the distance, first steeply and then slowly with small
    waves, like a logarithm. The scales c_h follow ALiBi's slopes.

    Args:
        num_features: features of the position vectors; 128 in the paper, for any model.

    Raises:
        ValueError: for an odd ``num_features``, or one below 2.
    """

    keeps_absolute_embedding = False
    shared_across_layers = True

    def __init__(self, context: EncodingContext, *, num_features: int = 128) -> None:
        super().__init__(context)
        check_at_least(2, "num_features", num_features)
        check_even("num_features", num_features)
        self.num_features = num_features
        self.table = PositionTable(Formula(sinusoidal_products, (num_features,)))
        self.factors = Constant(Formula(_factors, (context.num_heads,)))

    def bias_at(self, offsets: Tensor, end: int | None) -> Tensor:
        return self._per_head(self.table(with_end(offsets.abs(), end)))

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        if not is_recorded(q_positions):
            return super().attn_bias(q_positions, k_positions)
        # By the definition, since a table needs the largest distance.
        q, k = (fixed_sinusoids(at, self.num_features) for at in (q_positions, k_positions))
        return self._per_head((q @ k.mT).float())

    def _per_head(self, products: Tensor) -> Tensor:
        """(..., T, S) -> (..., H, T, S)."""
        return self.factors.on(products).view(-1, 1, 1) * products.unsqueeze(-3)


def _factors(num_heads: int, device: Device = None) -> Tensor:
    """Return 1 / c_h of the heads: (H,) float64."""
    return num_heads / (8.0 * torch.arange(1, num_heads + 1, dtype=torch.float64, device=device))
