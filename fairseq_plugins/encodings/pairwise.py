"""Biases of single pairs, for kernels that store no (T, S) matrix.

Shapes: B batch, H heads, T queries, S keys, N positions, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import PositionEncoding, relative_positions
from fairseq_plugins.encodings.position_bounds import known_end
from fairseq_plugins.kernels.flex import PairFunction


@dataclass(frozen=True, eq=False)
class PairwiseBias:
    """A bias as a function of one pair, and as products of features where it has a low rank.

    The tensors that the function reads may require gradients, if it indexes each of them once:
    FlexAttention adds up the gradients by index.
    """

    of_pair: PairFunction | None = None  # added to the scaled logits
    # (B or 1, H, T, F), whose products with the features of the keys are added to q.k before
    # scaling.
    query_features: Tensor | None = None
    key_features: Tensor | None = None  # (B or 1, H, S, F)


@runtime_checkable
class HasPairwiseBias(Protocol):
    """An encoding that can compute its ``attn_bias`` for single pairs."""

    def pairwise_bias(self, q_positions: Tensor, k_positions: Tensor, end: int) -> PairwiseBias:
        """Return the bias of ``attn_bias`` as a function of a pair.

        Args:
            q_positions: (B or 1, T).
            k_positions: (B or 1, S).
            end: all positions are in 0..``end`` - 1.
        """


class OffsetBias(PositionEncoding):
    """Base class of biases that depend on the offset k_position - q_position alone.

    A subclass defines ``bias_at``, from which the (T, S) bias and the one by pairs are computed.
    """

    def bias_at(self, offsets: Tensor, end: int | None) -> Tensor:
        """Return the bias of every offset: (..., T, S) int64 -> (..., H, T, S).

        Args:
            offsets: of any sign.
            end: all are in 1 - ``end``..``end`` - 1; None if unknown.
        """
        raise NotImplementedError

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return (B or 1, H, T, S) float32."""
        end = known_end(q_positions, k_positions)
        return self.bias_at(relative_positions(q_positions, k_positions), end)

    def bias_by_offset(self, end: int, device: torch.device) -> Tensor:
        """Return the bias of the offsets 1 - ``end``, ..., ``end`` - 1: (H, 2 end - 1).

        Raises:
            ValueError: ``bias_at`` returns another shape, which a kernel would read out of bounds.
        """
        offsets = torch.arange(1 - end, end, device=device).unsqueeze(0)
        bias, heads = self.bias_at(offsets, end), self.context.num_heads
        if bias.shape not in ((heads, *offsets.shape), (1, *offsets.shape)):
            raise ValueError(
                f"`bias_at` of the encoding {self.label!r} must be ({heads} or 1, 1, "
                f"{2 * end - 1}) for offsets {tuple(offsets.shape)}, but is {tuple(bias.shape)} "
                "instead."
            )
        return bias.squeeze(-2).expand(heads, -1)

    def pairwise_bias(self, q_positions: Tensor, k_positions: Tensor, end: int) -> PairwiseBias:
        """Look up the bias in the table of ``bias_by_offset``, where gradients add up by offset."""
        table = self.bias_by_offset(end, q_positions.device)
        # Shifted here, since an integer in the function would be a constant of the compiled kernel.
        q_at, k_at = position_at(q_positions - (end - 1)), position_at(k_positions)

        def of_pair(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return table[h, k_at(b, k) - q_at(b, q)]

        return PairwiseBias(of_pair)


def position_at(positions: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from the indices of a row and a token to a position of (B or 1, T)."""
    narrow = positions.int()
    if narrow.size(0) > 1:
        return lambda row, token: narrow[row, token]
    only = narrow[0]
    return lambda row, token: only[token]
