"""Scores that decay with the distance, under both attentions: PermuteFormer with its decay."""

import dataclasses

import pytest
import torch
from attention_cases import ATTENTIONS, DIM, HEADS, Layer, count, error, tokens
from hypothesis import given
from hypothesis import strategies as st
from test_decoding import (
    check_decoding,
    check_padded_prompt,
    check_padding_in_the_middle,
    check_steps,
)
from test_invariances import check_causality, check_padding, check_shift
from torch import Tensor

from fairseq_plugins.attention import build_attention, check_compatible
from fairseq_plugins.attention.normalizers import MIN_COSINE
from fairseq_plugins.encodings import (
    Compose,
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
    build_encoding,
)
from fairseq_plugins.kernels.normalizer import clamp_denominator

every_attention = pytest.mark.parametrize("attention", ATTENTIONS)
RATES = torch.tensor([2.0, 3.5], dtype=torch.float64).sigmoid()  # sigmoid(2 + 3h/H) for H = 2
CONTEXT = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=HEADS * DIM, causal=True)


def decaying(attention: str, dtype: torch.dtype = torch.float64, **options) -> Layer:
    return Layer(
        "per", attention, causal=True, dtype=dtype, encoding_options={"decay": True}, **options
    )


class DecayOnly(PositionEncoding):
    """A decay, and no transform."""

    def log_decay(self) -> Tensor:
        return RATES.log()


@every_attention
@pytest.mark.parametrize("first", [1, 4])
def test_incremental_is_full(attention, first):
    check_decoding(decaying(attention), torch.float64, first, 1e-9)
    check_decoding(decaying(attention, torch.float32), torch.float32, first, 1e-5)


@pytest.mark.parametrize("normalizer", ["plain", "none"])
def test_incremental_is_full_with_the_other_denominators(normalizer):
    check_decoding(decaying("linear", normalizer=normalizer), torch.float64, 2, 1e-9)


@every_attention
@pytest.mark.parametrize("sizes", [(3, 2, 4), (1, 5, 1, 2), (9,)], ids=str)
def test_steps_of_any_size(attention, sizes):
    check_steps(decaying(attention), sizes)


@every_attention
def test_padding_while_decoding(attention):
    check_padded_prompt(decaying(attention))
    check_padding_in_the_middle(decaying(attention))


@every_attention
def test_padding_never_changes_another_row_or_token(attention):
    check_padding(decaying(attention))


@every_attention
def test_the_future_is_not_seen(attention):
    check_causality(decaying(attention))


@every_attention
def test_only_differences_of_positions_count(attention):
    check_shift(decaying(attention))


@every_attention
@given(st.data(), st.integers(0, 2**31))
def test_padding_anywhere_at_any_position_is_as_if_it_were_not_there(attention, data, seed):
    """Positions with gaps; padded tokens claim positions at random. Whole and in two steps."""
    torch.manual_seed(seed)
    layer, length = decaying(attention), 8
    x, at = tokens(2, length), torch.randint(1, 9, (2, length)).cumsum(1)
    padding = torch.tensor(data.draw(st.lists(st.booleans(), min_size=16, max_size=16)))
    padding = padding.view(2, length)
    claimed = torch.where(padding, torch.randint(0, 200, (2, length)), at)
    whole = layer(x, claimed, padding=padding)
    cut = data.draw(st.integers(1, length - 1))
    early, state = layer.step(x[:, :cut], claimed[:, :cut], None, padding[:, :cut])
    late, _ = layer.step(x[:, cut:], claimed[:, cut:], state, padding[:, cut:])
    for b in range(2):
        kept = ~padding[b]
        alone = layer(x[b : b + 1, kept], at[b : b + 1, kept]) if kept.any() else x[:1, :0]
        for output in (whole, torch.cat((early, late), 1)):
            assert kept.sum() == 0 or error(output[b, kept], alone[0]) <= 1e-9


def encoding_of(kind: str) -> PositionEncoding:
    """A decay beside a permutation, alone, or after another transform too."""
    shape = {"num_heads": HEADS, "head_dim": DIM, "causal": True}
    if kind == "alone":
        return DecayOnly(CONTEXT)
    per = build_encoding("per", decay=True, **shape)
    return per if kind == "per" else Compose([build_encoding("rope", **shape), per])


KINDS = pytest.mark.parametrize("kind", ["per", "alone", "rope+per"])


@KINDS
@pytest.mark.parametrize("normalizer", ["encoded", "plain", "none"])
def test_linear_attention_is_the_formula(kind, normalizer):
    """Through the T x S matrix: q~.k~ r^(s - t), the plain denominator without r."""
    encoding = encoding_of(kind)
    attention = build_attention(
        "linear",
        encoding,
        num_heads=HEADS,
        head_dim=DIM,
        causal=True,
        normalizer=normalizer,
        feature_map="relu_shifted",
    )
    (q, k, v), at = torch.randn(3, 2, HEADS, 150, DIM, dtype=torch.float64), gaps(150)
    plain_q, plain_k = q.relu() + 1e-3, k.relu() + 1e-3
    encoded_q, encoded_k = (encoding.transform_key(x, at) for x in (plain_q, plain_k))
    scores = (encoded_q @ encoded_k.mT * powers(at)).tril()
    expected, floor = scores @ v, 0.0
    if kind == "rope+per" and normalizer == "encoded":
        bounds = encoded_q.norm(dim=-1).unsqueeze(-1) * encoded_k.norm(dim=-1).unsqueeze(-2)
        floor = MIN_COSINE * (bounds * powers(at)).tril().sum(-1, keepdim=True)
    if normalizer != "none":
        sums = scores if normalizer == "encoded" else (plain_q @ plain_k.mT).tril()
        expected = expected / clamp_denominator(sums.sum(-1, keepdim=True), floor)
    output, _ = attention(q, k, v, q_positions=at, k_positions=at)
    # r is rounded to float32, 3e-8 of it.
    assert error(output, expected) <= 1e-6


@KINDS
@pytest.mark.parametrize("need_weights", [True, False])
def test_softmax_attention_is_the_formula(kind, need_weights):
    """softmax(q~.k~ r^(s - t) / sqrt(D))."""
    encoding, at = encoding_of(kind), gaps(40)
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=True)
    q, k, v = torch.randn(3, 2, HEADS, 40, DIM, dtype=torch.float64)
    future = torch.ones(40, 40, dtype=torch.bool).triu(1)
    logits = encoding.transform_query(q, at) @ encoding.transform_key(k, at).mT
    logits = (logits * powers(at) / DIM**0.5).masked_fill(future, float("-inf"))
    output, weights = attention(q, k, v, q_positions=at, k_positions=at, need_weights=need_weights)
    assert error(output, logits.softmax(-1) @ v) <= 1e-6
    assert weights is None or error(weights, logits.softmax(-1)) <= 1e-6


def gaps(length: int) -> Tensor:
    """Positions (1, T) that grow by 1 to 3."""
    return torch.randint(1, 4, (1, length)).cumsum(1)


def powers(at: Tensor) -> Tensor:
    """r_h^(s - t): (H, T, T) for s >= t."""
    distance = (at.mT - at).clamp(min=0)
    return RATES.view(-1, 1, 1) ** distance


@every_attention
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nothing_overflows_far_out(attention, dtype):
    """At position 100,000, where r^-t would need thousands of digits."""
    layer = decaying(attention, dtype)
    x = tokens(1, 70, dtype).requires_grad_()
    near, far = layer(x, count(70)), layer(x, count(70, 100_000))
    # The permutation is another after so many powers of it; the scores are the same.
    torch.testing.assert_close(far, near, atol=8 * torch.finfo(dtype).eps, rtol=0.02)
    far.float().square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    jump = torch.cat((count(35), count(35, 100_000)), 1)
    assert layer(x, jump).isfinite().all()


@every_attention
def test_other_directions_are_refused(attention):
    with pytest.raises(IncompatibleEncodingError, match=r"'per'.*`decay=true`.*causal model would"):
        Layer("per", attention, causal=False, encoding_options={"decay": True})
    with pytest.raises(IncompatibleEncodingError, match="`decay=true`"):
        check_compatible(attention, "per", "decay=true", causal=False)
    check_compatible(attention, "per", "decay=true", causal=True)
    check_compatible(attention, "per", "decay=false", causal=False)


@every_attention
@pytest.mark.parametrize("joined", [False, True])
def test_a_class_that_says_nothing_of_directions_is_refused_too(attention, joined):
    """Its sums would decay from token to token, and leave later keys out without a word."""
    context = dataclasses.replace(CONTEXT, causal=False)
    encoding: PositionEncoding = DecayOnly(context)
    if joined:
        rope = build_encoding("rope", num_heads=HEADS, head_dim=DIM)
        encoding = Compose([rope, encoding])
    with pytest.raises(IncompatibleEncodingError, match=r"DecayOnly'.*`log_decay`.*causal model"):
        build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=False)


def test_a_composition_without_a_decay_has_every_direction():
    parts = [build_encoding(name, num_heads=HEADS, head_dim=DIM) for name in ("rope", "alibi")]
    assert Compose(parts).bidirectional_refusal is None
