"""Segment embedding of BERT's sentence pairs, with segments derived from the tokens."""

import torch
from torch import Tensor, nn


class SegmentEmbedding(nn.Module):
    """A learned vector added to the embeddings of tokens in the second segment.

    BERT (Devlin et al., 2019, section 3) adds one of two learned vectors to every token. Here the
    first segment's vector is part of the word embeddings, and this one is the second minus the
    first. It starts at zero.

    Args:
        embed_dim: width C of the embeddings.
        padding_idx: padding token, which gets no segment.
        eos_idx: token that ends a segment.
    """

    def __init__(self, embed_dim: int, padding_idx: int, eos_idx: int) -> None:
        super().__init__()
        self.padding_idx, self.eos_idx = padding_idx, eos_idx
        self.weight = nn.Parameter(torch.zeros(embed_dim))

    def forward(self, embeddings: Tensor, tokens: Tensor) -> Tensor:
        """Add the vector to embeddings (B, T, C) of tokens (B, T) in the second segment.

        Rows are ``<s> a </s> b </s>``; the first </s> belongs to the first segment.
        """
        ends = tokens.eq(self.eos_idx)
        ends_before = ends.long().cumsum(1) - ends.long()
        is_second = ends_before.gt(0) & tokens.ne(self.padding_idx)
        return embeddings + is_second.unsqueeze(-1) * self.weight
