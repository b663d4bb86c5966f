"""cosFormer: scores weighted by a quarter period of a cosine of the distance."""

import math

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, check_features
from fairseq_plugins.encodings.checks import length_or_longest
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Formula, PositionTable


@register_encoding(
    "cosformer",
    known_as=("cosine",),
    summary="scores times the cosine of the distance, a quarter turn per M positions",
    source="cosFormer (Qin et al. 2022); LRPE, Eq. 36 and 37",
    formula="score = q.k cos(pi (t - s) / 2M), under linear attention q and k after relu",
)
class CosFormer(PositionEncoding):
    """q.k cos(pi (t - s) / 2M), as features [x cos(pi s / 2M); x sin(pi s / 2M)] of q and k.

    Its feature map under linear attention is relu; softmax attention uses the product as logits.

    M is a constant of the model. The authors use the length of the batch, with which a token's
    features would change as a sequence grows, so that decoding differs from training. Beyond the
    distance M weights are negative: linear attention raises an error for such sequences, or, if M
    is below the model's max_positions, keeps the denominator away from 0.

    Args:
        length: M, at least the longest distance that matters; 0 for the model's max_positions.

    Raises:
        ValueError: a negative ``length``.
    """

    feature_map = "relu"

    def __init__(self, context: EncodingContext, *, length: int = 0) -> None:
        super().__init__(context)
        self.length = length_or_longest("length", length, context)
        self.keeps_positive = self.length >= context.max_positions
        self.positive_span = self.length
        self.table = PositionTable(Formula(_cos_sin, (math.pi / 2 / self.length,)))

    @property
    def encoded_dim(self) -> int:
        """2D."""
        return 2 * self.context.head_dim

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return [q cos; q sin]: (B, H, T, D) -> (B, H, T, 2D)."""
        check_features(self, q)
        cos, sin = self.table(positions).unsqueeze(1).split(1, dim=-1)
        return torch.cat((q * cos, q * sin), dim=-1).to(q.dtype)

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Return [k cos; k sin]: (B, H, S, D) -> (B, H, S, 2D)."""
        return self.transform_query(k, positions)


def _cos_sin(positions: Tensor, angle: float) -> Tensor:
    """Return cosine and sine of ``angle`` times positions: (...) -> (..., 2)."""
    turns = angle * positions
    return torch.stack((turns.cos(), turns.sin()), dim=-1)
