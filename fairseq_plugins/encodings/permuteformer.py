"""PermuteFormer: a fixed random permutation per head, applied s times at position s."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, check_features
from fairseq_plugins.encodings.frequencies import Device
from fairseq_plugins.encodings.permutations import PermutationPowers
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Constant, Formula


def decay_rates(num_heads: int, device: Device = None) -> Tensor:
    """Return log r_h (H,) float32 of the rates r_h = sigmoid(2 + 3h/H), h = 0..H-1."""
    heads = torch.arange(num_heads, dtype=torch.float64, device=device)
    return F.logsigmoid(2 + 3 * heads / num_heads).float()


@register_encoding(
    "per",
    known_as=("permuteformer", "permutation"),
    summary="a random permutation per head, applied s times at position s",
    source="PermuteFormer (Chen 2021); LRPE, Eq. 25",
    formula="score = (Pi_h^s q).(Pi_h^t k) = q.(Pi_h^(t-s) k), Pi_h a fixed random permutation",
)
def permuteformer(context: EncodingContext, *, decay: bool = False) -> "PermuteFormer":
    """The score (Pi_h^s q).(Pi_h^t k), times r_h^(s - t) with ``decay``.

    The permutations are drawn once and are in the state dict. The paper writes the decay as r^s on
    queries and r^-t on keys; r^-t overflows float16 from t = 88, so here the attention gets log r
    and multiplies by powers of the difference. The paper's feature map is relu + 1e-3
    (``relu_shifted``); the LRPE paper's table uses 1 + elu for every row, the default.

    Args:
        context: of the model.
        decay: multiply scores by r_h^(s - t), r_h = sigmoid(2 + 3h/H); causal attention only.
    """
    return DecayingPermuteFormer(context) if decay else PermuteFormer(context)


class PermuteFormer(PositionEncoding):
    """The score (Pi_h^s q).(Pi_h^t k)."""

    keeps_positive = True
    permutation: Tensor

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        drawn = [
            torch.randperm(context.head_dim, generator=context.generator)
            for _ in range(context.num_heads)
        ]
        self.register_buffer("permutation", torch.stack(drawn))
        self.powers = PermutationPowers()

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return Pi_h^s q: (B, H, T, D) -> (B, H, T, D)."""
        check_features(self, q)
        return self.powers(q, self.permutation, positions)

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Return Pi_h^t k: (B, H, S, D) -> (B, H, S, D)."""
        return self.transform_query(k, positions)


class DecayingPermuteFormer(PermuteFormer):
    """The score r_h^(s - t) (Pi_h^s q).(Pi_h^t k)."""

    bidirectional_refusal = (
        "its option `decay=true` weakens keys by their distance before the query, which is "
        "undefined for later keys"
    )

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.rates = Constant(Formula(decay_rates, (context.num_heads,)))

    def log_decay(self) -> Tensor:
        """Return log r_h (H,) float32."""
        return self.rates.on(self.permutation)
