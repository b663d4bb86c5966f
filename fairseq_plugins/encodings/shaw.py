"""Relative position representations: a learned vector per clipped offset, for keys and values."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import (
    EncodingContext,
    PositionEncoding,
    relative_positions,
)
from fairseq_plugins.encodings.registry import register_encoding


@register_encoding(
    "shaw",
    summary="a learned vector per clipped offset, added to the keys and to the values",
    source="Shaw et al. 2018, Eq. 3 and 4; LRPE, Eq. 32; Position Embeddings in BERT",
)
class Shaw(PositionEncoding):
    """q_s . a^K_{clip(t - s)} joins q_s . k_t, and sum_t w_st a^V_{clip(t - s)} joins the output.

    The tables are shared by heads and layers.

    Args:
        context: of the model.
        max_distance: offsets are clipped to -max_distance..max_distance; 64 in the BERT paper.
        values: also add a^V to the values; without it, the key-only form of LRPE, Eq. 32.

    Raises:
        ValueError: for a ``max_distance`` below 1.
    """

    shared_across_layers = True

    def __init__(
        self, context: EncodingContext, *, max_distance: int = 64, values: bool = True
    ) -> None:
        super().__init__(context)
        if max_distance < 1:
            raise ValueError(f"`max_distance` must be at least 1, but is {max_distance} instead.")
        self.max_distance = max_distance
        self.key_table = self._draw()
        self.value_table = self._draw() if values else None

    @property
    def hooks(self) -> frozenset[str]:
        """Without ``relative_values`` in the key-only form."""
        hooks = super().hooks
        return hooks if self.value_table is not None else hooks - {"relative_values"}

    def _draw(self) -> nn.Parameter:
        """Vectors (2k + 1, D), uniform as Glorot's, shared by heads."""
        rows, dim = 2 * self.max_distance + 1, self.context.head_dim
        bound = (6.0 / (rows + dim)) ** 0.5
        draws = torch.rand(rows, dim, generator=self.context.generator)
        return nn.Parameter((2 * draws - 1) * bound)

    def _index(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Rows of the tables: (B or 1, 1, T, S) int64."""
        relative = relative_positions(q_positions, k_positions).unsqueeze(1)
        return relative.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """q.a: (B, H, T, S), through (B, H, T, 2k + 1) so that no (T, S, D) is ever made."""
        per_offset = q @ self.key_table.to(q.dtype).mT
        index = self._index(q_positions, k_positions)
        return per_offset.gather(-1, index.expand(*q.shape[:3], k.size(-2)))

    def relative_values(
        self, weights: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """sum_t w_st a^V_{t-s}: (B, H, T, S) -> (B, H, T, D), weights first summed per offset."""
        assert self.value_table is not None
        index = self._index(q_positions, k_positions).expand(weights.shape)
        per_offset = weights.new_zeros(*weights.shape[:3], self.value_table.size(0))
        per_offset = per_offset.scatter_add(-1, index, weights)
        return per_offset @ self.value_table.to(weights.dtype)
