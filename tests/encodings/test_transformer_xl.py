"""Transformer-XL's four terms against the sum written out pair by pair."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import EncodingContext, build_encoding, build_model_encodings
from fairseq_plugins.encodings.transformer_xl import TransformerXL

HEADS, DIM, LONGEST = 2, 4, 16
WIDTH = HEADS * DIM
# Neither starts at 0, both have gaps, and some keys come later than every query.
Q_AT, K_AT = torch.tensor([[1, 4, 6, 30, 31]]), torch.tensor([[0, 2, 3, 30, 47, 60, 61]])


def build(**options) -> TransformerXL:
    """In float64, with u and v as large as the queries."""
    encoding = build_encoding(
        "xl", num_heads=HEADS, head_dim=DIM, max_positions=LONGEST, **options
    ).double()
    assert isinstance(encoding, TransformerXL)
    torch.nn.init.normal_(encoding.u)
    torch.nn.init.normal_(encoding.v)
    return encoding


def inputs(queries: int, keys: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    q, k = (torch.randn(batch, HEADS, n, DIM, dtype=torch.float64) for n in (queries, keys))
    return q, k


def sinusoid(offset: int) -> Tensor:
    """r_n, number by number."""
    angles = [offset * 10000 ** (-2 * j / WIDTH) for j in range(WIDTH // 2)]
    values = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    return torch.tensor(values, dtype=torch.float64)


def written_out(encoding: TransformerXL, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor):
    """u.k_t + q_s.(W_R r) + v.(W_R r), for one row of positions."""
    result = q.new_zeros(q.size(0), HEADS, q.size(2), k.size(2))
    for s, t in itertools.product(range(q.size(2)), range(k.size(2))):
        projected = encoding.weight @ sinusoid(int(q_at[s] - k_at[t]))
        for b, h in itertools.product(range(q.size(0)), range(HEADS)):
            r = projected[h * DIM : (h + 1) * DIM]
            terms = (encoding.u[h] @ k[b, h, t], q[b, h, s] @ r, encoding.v[h] @ r)
            result[b, h, s, t] = sum(terms)
    return result


def check(actual: Tensor, expected: Tensor) -> None:
    # The table of sinusoids is float32, everything else here float64.
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 4])
def test_every_pair_of_a_bidirectional_attention(batch):
    """Offsets of both signs, with gaps; in either order of the products (one for few queries)."""
    encoding, (q, k) = build(), inputs(5, 7, batch)
    expected = written_out(encoding, q, k, Q_AT[0], K_AT[0])
    check(encoding.relative_logits(q, k, Q_AT, K_AT), expected)
    for s in range(5):
        one = slice(s, s + 1)
        step = encoding.relative_logits(q[:, :, one], k, Q_AT[:, one], K_AT)
        check(step, expected[:, :, one])


def test_a_causal_attention_differs_in_what_it_hides_alone():
    encoding, (q, k) = build(causal=True), inputs(5, 7)
    actual = encoding.relative_logits(q, k, Q_AT, K_AT)
    seen = (K_AT[0] <= Q_AT[0].unsqueeze(1)).expand_as(actual)
    assert 0 < seen.float().mean() < 1
    check(actual[seen], written_out(encoding, q, k, Q_AT[0], K_AT[0])[seen])


def test_rows_of_a_batch_with_their_own_positions():
    encoding, (q, k) = build(), inputs(5, 7)
    q_at, k_at = torch.cat((Q_AT, 2 * Q_AT + 3)), torch.cat((K_AT, K_AT + 9))
    actual = encoding.relative_logits(q, k, q_at, k_at)
    for b in range(2):
        row = slice(b, b + 1)
        check(actual[row], written_out(encoding, q[row], k[row], q_at[b], k_at[b]))


def test_far_beyond_the_longest_training_sequence():
    """The sinusoids go on: 8 times ``max_positions``, both ways, and far from 0."""
    encoding, (q, k) = build(), inputs(3, 3)
    at = torch.tensor([[0, 8 * LONGEST - 1, 8 * LONGEST]])
    expected = written_out(encoding, q, k, at[0], at[0])
    check(encoding.relative_logits(q, k, at, at), expected)
    shifted = at + 10_000
    check(encoding.relative_logits(q, k, shifted, shifted), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_the_papers_equation(causal):
    """A = ((q + u) k + (q + v) W_R r) / sqrt(D), softmax, values."""
    encoding, (q, k), at = build(causal=causal), inputs(6, 6), torch.arange(6)
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    v = torch.randn_like(k)
    logits = (q @ k.mT + written_out(encoding, q, k, at, at)) / DIM**0.5
    if causal:
        logits = logits.masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    output, _ = attention(q, k, v, q_positions=at[None], k_positions=at[None])
    check(output, logits.softmax(-1) @ v)


@pytest.mark.parametrize("queries", [1, 5])
def test_gradients_reach_everything_learned(queries):
    """Against finite differences, in both orders of the products."""
    encoding, (q, k) = build(), inputs(queries, 3, batch=1)
    names = ["u", "v", "weight"]
    learned = [encoding.get_parameter(name) for name in names]
    assert [name for name, _ in encoding.named_parameters()] == ["weight", "u", "v"]

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = encoding

        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return self.encoding.relative_logits(q, k, Q_AT[:, :queries], K_AT[:, :3])

    def logits(q: Tensor, k: Tensor, *values: Tensor) -> Tensor:
        given = {f"encoding.{n}": value for n, value in zip(names, values, strict=True)}
        return functional_call(Logits(), given, (q, k))

    torch.autograd.gradcheck(logits, (q.requires_grad_(), k.requires_grad_(), *learned))


def test_layers_share_u_and_v_and_have_their_own_projection():
    context = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=WIDTH)
    layers = build_model_encodings("xl", 3, context, {}).layers
    stack = torch.nn.ModuleList(layer for layer in layers if layer is not None)
    shapes = sorted(tuple(p.shape) for p in stack.parameters())
    assert shapes == [(HEADS, DIM)] * 2 + [(WIDTH, WIDTH)] * 3
    first, *others = stack
    for other in others:
        assert other.u is first.u
        assert other.v is first.v
        assert not torch.equal(other.weight, first.weight)


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="`embed_dim` must be even, but is 9"):
        build_encoding("xl", num_heads=3, head_dim=3)
