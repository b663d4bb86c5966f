"""Contributions of words and positions to a score: Eq. 7 and Figure 9 of the BERT paper.

Shapes: B batch, H heads, T positions, D head_dim, C embed_dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_plugins.analysis.identical_words import first_layer_attention
from fairseq_plugins.analysis.loaded_stacks import LoadedStack


@dataclass(frozen=True)
class Terms:
    """The four correspondences of Eq. 7 and a remainder, which sum to the score."""

    word_word: Tensor  # (B, H, T, T), query first, as all terms
    word_position: Tensor
    position_word: Tensor
    position_position: Tensor
    rest: Tensor  # added by an encoding inside the attention; 0 without one

    def total(self) -> Tensor:
        """Sum the terms to the scores (B, H, T, T)."""
        words = self.word_word + self.word_position
        return words + self.position_word + self.position_position + self.rest

    def shares(self) -> dict[str, float]:
        """Return each term's share of the variance of scores between keys.

        Its covariance over keys with the score, as a share of the score's variance, both pooled
        over B, H and queries: they sum to 1.
        """
        total = _centred(self.total())
        variance = total.square().sum()
        return {
            name: float((_centred(term) * total).sum() / variance)
            for name, term in vars(self).items()
        }


def position_correlation(loaded: LoadedStack, vectors: Tensor) -> Tensor:
    """Compute P W_Q W_K^T P^T of each head of the first layer: (T, C) -> (H, T, T) (Figure 9).

    Without scale, biases and normalisation.
    """
    attention = loaded.stack.layers[0].self_attn
    q, k = (
        _heads(vectors.to(layer.weight) @ layer.weight.mT, attention.num_heads)
        for layer in (attention.q_proj, attention.k_proj)
    )
    return q @ k.mT


def through_norm(whole: Tensor, part: Tensor, norm: nn.LayerNorm | None) -> Tensor:
    """Pass a summand through the layer normalisation of the sum, without bias.

    Given the standard deviation of the whole sum, the normalisation is linear in the parts.

    Args:
        whole: (..., C), the sum.
        part: (..., C), the summand.
        norm: None returns `part`.
    """
    if norm is None:
        return part
    deviation = (whole.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return (part - part.mean(-1, keepdim=True)) / deviation * norm.weight


@torch.no_grad()
def split_first_layer(loaded: LoadedStack, tokens: Tensor) -> Terms:
    """Split the first layer's scores for tokens (B, T) without padding by Eq. 7.

    The position's part is the vector that an encoding adds to the token embeddings; the words' part
    is the rest, with all biases. Unlike in the paper, the normalisations between embedding and
    projection are applied, as linear maps with the standard deviation of the sum.

    Raises:
        ValueError: an encoding without an embedding of positions, or attention without weights.
    """
    stack, seen = loaded.stack, first_layer_attention(loaded, tokens)
    if stack.position_embedding is None:
        raise ValueError(
            "the model must have an absolute position encoding to be split by Eq. 7, but has none."
        )
    words = stack.embed_scale * stack.embed_tokens(tokens)
    index = torch.arange(tokens.size(1), device=tokens.device).unsqueeze(0)
    lengths = tokens.new_full((len(tokens),), tokens.size(1))
    whole = stack.position_embedding.embed(words, index, lengths=lengths, tokens=tokens)
    position, first = whole - words, stack.layers[0]
    norms = [stack.layernorm_embedding]
    norms += [first.self_attn_layer_norm] if first.normalize_before else []
    for norm in norms:
        position = through_norm(whole, position, norm)
        whole = whole if norm is None else norm(whole)
    projected = []
    for layer in (seen.attention.q_proj, seen.attention.k_proj):
        of_position = position @ layer.weight.mT
        projected += [layer(seen.inputs) - of_position, of_position]
    q_word, q_position, k_word, k_position = (
        _heads(vector, seen.attention.num_heads) for vector in projected
    )
    scale = float(seen.attention.attention.scale)
    ww, wp, pw, pp = (scale * q @ k.mT for q in (q_word, q_position) for k in (k_word, k_position))
    return Terms(ww, wp, pw, pp, rest=seen.scores - ww - wp - pw - pp)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """Split features into heads: (..., T, C) -> (..., H, T, D)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def _centred(scores: Tensor) -> Tensor:
    return scores - scores.mean(-1, keepdim=True)
