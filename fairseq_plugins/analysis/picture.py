"""Pictures of an encoding: its definition, its kernel, its attention.

Words are vectors of independent normal features (C,). W_Q and W_K are the identity.

Shapes: B words, H heads, T positions, D head_dim, C = H D.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.analysis.position_vectors import by_offset
from fairseq_plugins.encodings import (
    PositionEncoding,
    PositionFacts,
    RelativeOnAverage,
    Stochastic,
    build_encoding,
)
from fairseq_plugins.encodings.canonical import Primitive, canonical_form

HEADS, DIM = 4, 16
LENGTH = 129  # positions measured
SHOWN = 64  # positions in pictures of all pairs
WORDS = 32
AT_ONCE = 8  # words per draw of a stochastic encoding
MATRICES_AT = (1, 4, 16)  # distances before the query, or positions
FORM_AT = (-16, -4, -1, 0, 1, 4, 16)


@dataclass(frozen=True)
class Panel:
    """A panel of an encoding's definition."""

    title: str
    kind: str  # ``matrix``, or ``lines`` (one for each row)
    values: Tensor  # (rows, columns)
    x: list[int]  # labels of the columns


@dataclass(frozen=True)
class EncodingPicture:
    """Arrays shown in the picture of an encoding."""

    name: str
    causal: bool  # whether the attention is causal, for encodings that require it
    offsets: list[int]  # t - s of `kernel` and `spread`
    kernel: Tensor  # (H, offsets), the mean logit of a query and a key of the same word
    spread: Tensor  # (H, offsets), the standard deviation of the logits of different words
    weights: Tensor  # (T <= SHOWN, T), over a repeated word, mean over heads and words
    definition: list[Panel] = field(default_factory=list)
    # Primitives of the canonical form (LRPE, Eq. 6) by offset, empty without one.
    form: dict[int, tuple[Primitive, ...]] = field(default_factory=dict)
    no_form_reason: str = ""  # why there is no canonical form
    options: str = ""  # words `name=value`
    model: str = ""  # the model and the layer whose learned parameters it has; "" if untrained

    @property
    def title(self) -> str:
        """The name with the options and the model."""
        return ", ".join(filter(None, [self.name, self.options, self.model]))

    @property
    def kind(self) -> str:
        """The kind of the attention."""
        return "causal" if self.causal else "bidirectional"

    @property
    def decay(self) -> Tensor:
        """Return exp(kernel) over its largest value: (H, offsets)."""
        return (self.kernel - self.kernel.amax(1, keepdim=True)).exp()


def build(name: str, *, length: int = LENGTH, seed: int = 1, **options: Any) -> PositionEncoding:
    """Build an encoding as in a model of that length, causal only where required."""

    def make(causal: bool) -> PositionEncoding:
        found = build_encoding(
            name,
            num_heads=HEADS,
            head_dim=DIM,
            max_positions=length,
            causal=causal,
            vocab_size=WORDS,
            generator=torch.Generator().manual_seed(seed),
            **options,
        )
        return found.eval()

    found = make(False)
    return make(True) if found.bidirectional_refusal else found


@torch.no_grad()
def observe(
    name: str, encoding: PositionEncoding, *, length: int, seed: int = 1
) -> EncodingPicture:
    """Measure an encoding made by `build`, or one of a model."""
    encoding.bind_projections(nn.Identity(), nn.Identity())
    causal, words = encoding.context.causal, min(WORDS, encoding.context.vocab_size or WORDS)
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(words, encoding.context.embed_dim, generator=generator)
    shown = min(SHOWN, length)
    kernels, others, weights = [], [], []
    for i in range(0, words, AT_ONCE):
        for part in encoding.parts:
            if isinstance(part, Stochastic):
                part.redraw(seed + i)
        ids = torch.arange(words)[i : i + AT_ONCE]
        heads = heads_of(encoding, vectors[ids], ids, length)
        same = logits(encoding, heads, heads)
        kernels.append(same.sum(0))
        others.append(logits(encoding, heads, heads.roll(1, 0)))
        # A separate sentence, since some encodings depend on its length.
        short = heads_of(encoding, vectors[ids], ids, shown)
        weights.append(_softmax(logits(encoding, short, short), causal).mean(1).sum(0))
    kernel, spread = torch.stack(kernels).sum(0) / words, torch.cat(others).std(0)
    offsets = list(range(1 - length, 1 if causal else length))
    form, no_form_reason = _canonical_form(encoding, offsets)
    return EncodingPicture(
        name,
        causal,
        offsets,
        by_offset(kernel)[:, : len(offsets)],
        by_offset(spread)[:, : len(offsets)],
        torch.stack(weights).sum(0) / words,
        definition_of(encoding, shown),
        form,
        no_form_reason,
    )


def heads_of(encoding: PositionEncoding, words: Tensor, ids: Tensor, length: int) -> Tensor:
    """Encode sentences that each repeat a word (B, C) as heads (B, H, T, D)."""
    x = words.unsqueeze(1).repeat(1, length, 1)
    if "embed" in encoding.hooks:
        x = encoding.embed(
            x,
            torch.arange(length).unsqueeze(0),
            lengths=torch.full((len(x),), length),
            tokens=ids.unsqueeze(1).repeat(1, length),
        )
    return x.view(len(x), length, encoding.context.num_heads, -1).transpose(1, 2)


def logits(encoding: PositionEncoding, q: Tensor, k: Tensor) -> Tensor:
    """Compute the softmax's inputs (B, H, T, T) for queries and keys (B, H, T, D)."""
    at = torch.arange(q.size(2)).unsqueeze(0)
    hooks = encoding.hooks
    encoded_q = encoding.transform_query(q, at) if "transform_query" in hooks else q
    encoded_k = encoding.transform_key(k, at) if "transform_key" in hooks else k
    scores = encoded_q @ encoded_k.mT
    if "log_decay" in hooks:
        distance = (at[0].unsqueeze(1) - at[0]).clamp(min=0)
        scores = scores * (encoding.log_decay().view(-1, 1, 1) * distance).exp()
    if "relative_logits" in hooks:
        scores = scores + encoding.relative_logits(q, k, at, at)
    scores = scores * encoding.logit_scale()
    if "attn_bias" in hooks:
        scores = scores + encoding.attn_bias(at, at)
    return scores


def definition_of(encoding: PositionEncoding, shown: int) -> list[Panel]:
    """Make panels of an encoding's terms and factors, for the first head."""
    found: list[Panel] = []
    hooks = encoding.hooks
    if "embed" in hooks:
        found.append(_position_vectors(encoding, shown))
    if hooks & {"transform_query", "transform_key", "log_decay"}:
        found.append(_matrices(encoding, shown))
    if "relative_logits" in hooks and PositionFacts.of(encoding).is_relative:
        found += _offset_vectors(encoding, shown)
    if "attn_bias" in hooks:
        at = torch.arange(shown).unsqueeze(0)
        # The row of one query; a bias that is not relative differs between queries.
        query = shown - 1 if encoding.context.causal else shown // 2
        bias = encoding.attn_bias(at, at)[0, :, query]
        offsets = list(range(-query, shown - query))
        found.append(Panel("bias of each head against t - s", "lines", bias, offsets))
    return found


def _position_vectors(encoding: PositionEncoding, shown: int) -> Panel:
    generator = torch.Generator().manual_seed(0)
    words = torch.randn(AT_ONCE, encoding.context.embed_dim, generator=generator)
    ids = torch.arange(AT_ONCE)
    encoded = heads_of(encoding, words, ids, shown)  # (B, H, T, D)
    plain = words.view(AT_ONCE, encoding.context.num_heads, 1, -1)
    added = (encoded - plain).mean(0).transpose(0, 1).flatten(1)
    title = "added to a word: feature by position"
    return Panel(title, "matrix", added.T, list(range(shown)))


def _matrices(encoding: PositionEncoding, shown: int) -> Panel:
    """Draw W of relative encodings at some distances, or else the matrices that encode keys."""
    chosen = [position for position in MATRICES_AT if position < shown]
    words = ", ".join(map(str, chosen))
    if PositionFacts.of(encoding).is_relative or isinstance(encoding, RelativeOnAverage):
        dim = encoding.context.head_dim
        matrices = [
            _factor(canonical_form(encoding, -position), "content", "content", dim, dim)
            for position in chosen
        ]
        title = f"W of t - s = {', '.join(f'-{position}' for position in chosen)}, first head"
    else:
        dim = encoding.context.head_dim
        basis = torch.eye(dim).expand(1, encoding.context.num_heads, -1, -1)
        matrices = [
            encoding.transform_key(basis, torch.full((1, dim), at))[0, 0].T for at in chosen
        ]
        title = f"matrices that encode keys at {words}, first head"
    gap = torch.zeros(matrices[0].size(0), 2)
    values = torch.cat([part for m in matrices for part in (m.float(), gap)][:-1], 1)
    return Panel(title, "matrix", values, list(range(values.size(1))))


def _factor(form: tuple[Primitive, ...], query: str, key: str, *shape: int) -> Tensor:
    """Return the first head's factor between two kinds of a form, or zeros without one."""
    found = (p.matrix[0] for p in form if (p.query, p.key) == (query, key))
    return next(found, torch.zeros(shape, dtype=torch.float64))


def _offset_vectors(encoding: PositionEncoding, shown: int) -> list[Panel]:
    """Draw the vectors multiplied with queries, and with keys, at each offset."""
    reach = list(range(1 - shown, 1 if encoding.context.causal else shown))
    forms = [canonical_form(encoding, offset) for offset in reach]
    dim, found = encoding.context.head_dim, []
    for side, kinds in (("queries", ("content", "one")), ("keys", ("one", "content"))):
        columns = [_factor(form, *kinds, dim).flatten() for form in forms]
        values = torch.stack(columns, 1).float()
        if values.any():
            title = f"multiplied with {side}: feature by t - s, first head"
            found.append(Panel(title, "matrix", values, reach))
    return found


def _canonical_form(
    encoding: PositionEncoding, offsets: list[int]
) -> tuple[dict[int, tuple[Primitive, ...]], str]:
    try:
        chosen = [offset for offset in FORM_AT if offset in offsets]
        return {offset: canonical_form(encoding, offset) for offset in chosen}, ""
    except ValueError as error:
        return {}, str(error)


def _softmax(scores: Tensor, causal: bool) -> Tensor:
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return scores.softmax(-1)
