"""Segments of BERT's sentence pairs, found from the tokens alone."""

import torch
from torch import Tensor, nn


class SegmentEmbedding(nn.Module):
    """A learned vector for the second segment of a row, added to the embeddings of its tokens.

    BERT (Devlin et al., 2019, section 3) adds one of two learned vectors to every token: that of
    the first or of the second sentence. Here the first is part of the word embeddings, and this
    vector is the second minus the first. It is zero at the start.

    Args:
        embed_dim: width C of the embeddings.
        padding_idx: token of padding, which gets nothing.
        eos_idx: token that ends a segment.
    """

    def __init__(self, embed_dim: int, padding_idx: int, eos_idx: int) -> None:
        super().__init__()
        self.padding_idx, self.eos_idx = padding_idx, eos_idx
        self.weight = nn.Parameter(torch.zeros(embed_dim))

    def forward(self, embeddings: Tensor, tokens: Tensor) -> Tensor:
        """Add the vector to embeddings (B, T, C) where tokens (B, T) are of the second segment."""
        second = second_segment(tokens, self.padding_idx, self.eos_idx)
        return embeddings + second.unsqueeze(-1) * self.weight


def second_segment(tokens: Tensor, padding_idx: int, eos_idx: int) -> Tensor:
    """Mark tokens after the first end of a segment in their row.

    Args:
        tokens: (B, T), in rows ``<s> a </s> b </s>``; the first </s> is of the first segment.
        padding_idx: token of padding.
        eos_idx: token that ends a segment.

    Returns:
        (B, T), bool; False at padding.
    """
    ends = tokens.eq(eos_idx)
    ends_before = ends.long().cumsum(1) - ends.long()
    return ends_before.gt(0) & tokens.ne(padding_idx)
