"""A Transformer layer over complex features, for complex-order embeddings.

Shapes: B batch, H heads, T tokens, D complex features of a head, C = 2 H D.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ComplexEncoderLayer(nn.Module):
    """Self-attention and a feed-forward part over [real; imaginary], each with a residual and norm.

    softmax(|q k| / sqrt(D)) v with complex q, k and v (Wang et al. 2020). As in the authors' code
    all weights are real and shared by real and imaginary parts; q is multiplied by k, not by its
    conjugate, and norms follow their blocks. The relative term that they took from Transformer-XL
    is left out.

    Args:
        embed_dim: C.
        num_heads: H.
        ffn_dim: inner complex features of the feed-forward part.
        dropout: of the attention's weights, of the feed-forward part's inner features, and of both
            blocks' outputs.
        causal: whether query s sees only keys t <= s.

    Raises:
        ValueError: `embed_dim` is not a multiple of 2 H.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float = 0.1,
        causal: bool = False,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % (2 * num_heads):
            raise ValueError(
                "`embed_dim` must be a multiple of twice `num_heads`, a real and an imaginary part "
                f"for each head, but they are {embed_dim} and {num_heads} instead."
            )
        half = embed_dim // 2
        self.num_heads, self.dropout, self.causal = num_heads, dropout, causal
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(half, half) for _ in range(4)
        )
        self.fc1, self.fc2 = nn.Linear(half, ffn_dim), nn.Linear(ffn_dim, half)
        self.self_attn_norm, self.ffn_norm = nn.LayerNorm(half), nn.LayerNorm(half)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Map (B, T, C) to (B, T, C).

        Args:
            x: real parts in the first half of the features, imaginary parts in the second.
            key_padding_mask: (B, T) bool, True where padded.

        Raises:
            ValueError: a mask of another type or shape.
        """
        hidden = self._hidden_keys(x, key_padding_mask)
        parts = x.unflatten(-1, (2, -1))
        parts = self.self_attn_norm(parts + self._dropped(self._attend(parts, hidden)))
        inner = self._dropped(F.relu(self.fc1(parts)))
        output: Tensor = self.ffn_norm(parts + self._dropped(self.fc2(inner)))
        return output.flatten(-2)

    def weights(self, parts: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return softmax(|q k| / sqrt(D)) (B, H, T, T) for parts (B, T, 2, C/2).

        Args:
            parts: real and imaginary parts.
            hidden: True for keys that a query does not see, broadcast to (B, H, T, T).
        """
        wide = torch.promote_types(parts.dtype, torch.float32)
        q, k = (self._heads(proj(parts)).to(wide) for proj in (self.q_proj, self.k_proj))
        real = q[0] @ k[0].mT - q[1] @ k[1].mT
        imaginary = q[0] @ k[1].mT + q[1] @ k[0].mT
        # vector_norm has gradient 0 at 0, where a square root would have an infinite one.
        modulus = torch.linalg.vector_norm(torch.stack((real, imaginary)), dim=0)
        logits = modulus / math.sqrt(q.size(-1))
        if hidden is not None:  # not -inf, since a padded query may see no key
            logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
        return logits.softmax(-1).to(parts.dtype)

    def _attend(self, parts: Tensor, hidden: Tensor | None) -> Tensor:
        weights = self._dropped(self.weights(parts, hidden))
        mixed = weights @ self._heads(self.v_proj(parts))
        output: Tensor = self.out_proj(mixed.permute(1, 3, 0, 2, 4).flatten(-2))
        return output

    def _heads(self, parts: Tensor) -> Tensor:
        """Separate heads: (B, T, 2, H D) -> (2, B, H, T, D)."""
        return parts.unflatten(-1, (self.num_heads, -1)).permute(2, 0, 3, 1, 4)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def _hidden_keys(self, x: Tensor, mask: Tensor | None) -> Tensor | None:
        hidden = None
        if mask is not None:
            if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
                raise ValueError(
                    f"`key_padding_mask` must be bool {tuple(x.shape[:2])}, but is {mask.dtype} "
                    f"{tuple(mask.shape)} instead."
                )
            hidden = mask[:, None, None]
        if self.causal:
            count = x.size(1)
            future = torch.ones(count, count, dtype=torch.bool, device=x.device).triu(1)
            hidden = future if hidden is None else hidden | future
        return hidden

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, causal={self.causal}"
