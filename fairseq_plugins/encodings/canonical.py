"""The canonical form of relative encodings (LRPE, Eq. 6): a sum of q^ W_{t-s} k^ over primitives.

q^ and k^ are the content (q_s and k_t; phi(q_s) and phi(k_t) under linear attention) or the
constant 1, which the paper writes as an identity; W_{t-s} depends on the difference of positions
alone. The scores of every relative encoding are affine in q and in k, so the primitives are found
by evaluating its hooks at 0 and the basis vectors.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import PositionEncoding
from fairseq_plugins.encodings.properties import PositionFacts
from fairseq_plugins.encodings.protocols import RelativeOnAverage

Argument = Literal["content", "one"]


@dataclass(frozen=True)
class Primitive:
    """One term of Eq. 6 at one offset."""

    query: Argument  # whether q^ is the query or the constant 1
    key: Argument  # whether k^ is the key or the constant 1
    matrix: Tensor  # W_{t-s}, (H, d1, d2) float64, D for content and 1 for the constant


def canonical_form(encoding: PositionEncoding, offset: int) -> tuple[Primitive, ...]:
    """Compute the non-zero primitives of an encoding for t - s = ``offset``.

    An attention multiplies their sum by ``encoding.logit_scale()``. Transforms of values are not
    part of the scores. Complex encodings (``lrpe_type8``) are in real form: W is the real part of
    P^H Lambda P. For a stochastic encoding these are the primitives of its expected scores.

    Raises:
        ValueError: the encoding is not relative, or a positive offset for one that supports only
            causal attention.
    """
    if isinstance(encoding, RelativeOnAverage):
        with torch.no_grad():
            return (Primitive("content", "content", encoding.expected_scores(offset)),)
    if not PositionFacts.of(encoding).is_relative:
        raise ValueError(f"the encoding {encoding.label!r} is not relative: it has no W_(t-s).")
    if offset > 0 and encoding.bidirectional_refusal:
        raise ValueError(
            f"`offset` must be at most 0 for {encoding.label!r}, but is {offset} instead: "
            f"{encoding.bidirectional_refusal}."
        )
    x = _probes(encoding)
    q_at, k_at = (torch.full((1, x.size(2)), at) for at in (max(-offset, 0), max(offset, 0)))
    with torch.no_grad():
        q, k = encoding.transform_query(x, q_at), encoding.transform_key(x, k_at)
        scores = _affine((q @ k.mT)[0])
        if "log_decay" in encoding.hooks:
            scores = scores * (encoding.log_decay().double() * -offset).exp().view(-1, 1, 1)
        if "relative_logits" in encoding.hooks:
            scores = scores + _affine(encoding.relative_logits(x, x, q_at, k_at)[0].double())
        if "attn_bias" in encoding.hooks:
            bias = encoding.attn_bias(q_at[:, :1], k_at[:, :1])
            scores[:, :1, :1] += bias[0].double() / encoding.logit_scale()
    return _split(scores)


def _probes(encoding: PositionEncoding) -> Tensor:
    """Return 0, e_1, ..., e_D as a sequence: (1, H, D + 1, D) float64."""
    heads, dim = encoding.context.num_heads, encoding.context.head_dim
    basis = torch.eye(dim + 1, dim, dtype=torch.float64).roll(1, 0)
    return basis.expand(1, heads, -1, -1)


def _affine(values: Tensor) -> Tensor:
    """Compute the coefficients of c + a.q + b.k + q^T W k from its values at the probes.

    Both are (H, 1 + D, 1 + D); row and column 0 of the coefficients belong to the constant 1.
    """
    form = values.clone()
    form[:, 1:, :] -= values[:, :1, :]
    form[:, :, 1:] -= form[:, :, :1].clone()
    return form


def _split(form: Tensor) -> tuple[Primitive, ...]:
    """Return the non-zero blocks of an affine form (H, 1 + D, 1 + D)."""
    content, one = slice(1, None), slice(0, 1)
    blocks = (
        Primitive("content", "content", form[:, content, content]),
        Primitive("content", "one", form[:, content, one]),
        Primitive("one", "content", form[:, one, content]),
        Primitive("one", "one", form[:, one, one]),
    )
    return tuple(block for block in blocks if block.matrix.any())
