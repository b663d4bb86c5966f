"""TUPE against its formula written out, its [CLS] token, and where its table ends."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import (
    EncodingContext,
    PositionFacts,
    build_encoding,
    build_model_encodings,
    with_absolute_embedding,
)
from fairseq_plugins.encodings.tupe import TUPE

HEADS, DIM, LONGEST = 2, 3, 12
WIDTH = HEADS * DIM


def build(name: str = "tupe", *, causal: bool = False, **options) -> TUPE:
    """In float64, every parameter at random."""
    encoding = build_encoding(
        name, num_heads=HEADS, head_dim=DIM, max_positions=LONGEST, causal=causal, **options
    ).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    assert isinstance(encoding, TUPE)
    return encoding


def normed(encoding: TUPE, position: int) -> Tensor:
    p = encoding.weight[position]
    deviation = ((p - p.mean()).square().mean() + encoding.norm.eps).sqrt()
    return (p - p.mean()) / deviation * encoding.norm.weight + encoding.norm.bias


def correlation(encoding: TUPE, h: int, s: int, t: int) -> Tensor:
    """(p_s U_Q)(p_t U_K)^T / sqrt(2 D) of one head, number by number."""
    total = torch.zeros((), dtype=torch.float64)
    p_s, p_t = normed(encoding, s), normed(encoding, t)
    for feature in range(h * DIM, (h + 1) * DIM):
        q = sum(p_s[c] * encoding.query_projection[c, feature] for c in range(WIDTH))
        k = sum(p_t[c] * encoding.key_projection[c, feature] for c in range(WIDTH))
        total = total + q * k
    return total / math.sqrt(2 * DIM)


def by_the_formula(encoding: TUPE, q_at: Tensor, k_at: Tensor) -> Tensor:
    """The positional term (H, T, S) of one row of positions."""
    result = torch.empty(HEADS, q_at.numel(), k_at.numel(), dtype=torch.float64)
    relative = None
    if encoding.relative is not None:
        relative = encoding.relative.attn_bias(q_at[None], k_at[None])[0]
    for h in range(HEADS):
        for i, s in enumerate(q_at.tolist()):
            for j, t in enumerate(k_at.tolist()):
                value = correlation(encoding, h, s, t)
                if relative is not None:
                    value = value + relative[h, i, j]
                if encoding.untied and s == 0:
                    value = encoding.from_cls[h]
                if encoding.untied and t == 0:
                    value = encoding.to_cls[h]
                result[h, i, j] = value
    return result


@pytest.mark.parametrize("name", ["tupe", "tupe_relative"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_bias_is_the_formula(name, causal):
    encoding = build(name, causal=causal)
    q_at, k_at = torch.tensor([[0, 3, 11], [1, 2, 0]]), torch.tensor([[0, 1, 2, 7]])
    bias = encoding.attn_bias(q_at, k_at)
    assert bias.shape == (2, HEADS, 3, 4)
    for b in range(2):
        expected = by_the_formula(encoding, q_at[b], k_at[0])
        torch.testing.assert_close(bias[b], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
def test_content_is_scaled_for_two_terms(causal):
    """softmax(q.k / sqrt(2 D) + the positional term)."""
    encoding, at = build(causal=causal), torch.arange(5)
    q, k, v = torch.randn(3, 2, HEADS, 5, DIM, dtype=torch.float64)
    logits = q @ k.mT / math.sqrt(2 * DIM) + by_the_formula(encoding, at, at)
    if causal:
        logits = logits.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    output, _ = attention(q, k, v, q_positions=at[None], k_positions=at[None])
    torch.testing.assert_close(output, logits.softmax(-1) @ v, rtol=1e-9, atol=1e-9)


def test_cls_looks_and_is_looked_at_without_a_position():
    """Its row and column are one number each per head, whatever the table says."""
    encoding, at = build("tupe_relative"), torch.arange(6).unsqueeze(0)
    bias = encoding.attn_bias(at, at)
    assert (bias[0, :, 0, 1:] == encoding.from_cls.unsqueeze(-1)).all()
    assert (bias[0, :, :, 0] == encoding.to_cls.unsqueeze(-1)).all()
    with torch.no_grad():
        encoding.weight[0].normal_()
    assert torch.equal(encoding.attn_bias(at, at), bias)
    tied = build("tupe_relative", cls_token="tied")
    tied.load_state_dict(encoding.state_dict(), strict=False)
    inner = (slice(None), slice(None), slice(1, None), slice(1, None))
    assert torch.equal(tied.attn_bias(at, at)[inner], bias[inner])
    assert not torch.isclose(tied.attn_bias(at, at)[:, :, 0], bias[:, :, 0]).any()


def test_both_scalars_matter_to_the_softmax():
    encoding, at = build(), torch.arange(6).unsqueeze(0)
    weights = encoding.attn_bias(at, at).softmax(-1)
    (weights * torch.randn_like(weights)).sum().backward()
    assert encoding.from_cls.grad.abs().min() > 1e-3
    assert encoding.to_cls.grad.abs().min() > 1e-3


def test_equal_scalars_are_the_papers_model():
    """theta_1 in the whole row of [CLS]: a constant that softmax does not see."""
    encoding, at = build(), torch.arange(6).unsqueeze(0)
    with torch.no_grad():
        encoding.from_cls.copy_(encoding.to_cls)
    weights = encoding.attn_bias(at, at).softmax(-1)
    torch.testing.assert_close(weights[0, :, 0], torch.full((HEADS, 6), 1 / 6).double())
    fresh = build_encoding("tupe", num_heads=HEADS, head_dim=DIM)
    assert torch.equal(fresh.from_cls, fresh.to_cls)


def test_the_pair_of_cls_with_itself_is_the_papers_where_asked():
    """theta_1 in the whole row, which softmax then does not see; else as without the option."""
    at = torch.arange(6).unsqueeze(0)
    paper, default = build("tupe_relative", cls_pair="theta_1"), build("tupe_relative")
    default.load_state_dict(paper.state_dict())
    bias, other = paper.attn_bias(at, at), default.attn_bias(at, at)
    assert (bias[0, :, 0] == paper.from_cls.unsqueeze(-1)).all()
    assert (bias[0, :, 1:, 0] == paper.to_cls.unsqueeze(-1)).all()
    assert (other[0, :, 0, 0] == paper.to_cls).all()
    bias[0, :, 0, 0] = other[0, :, 0, 0]
    assert torch.equal(bias, other)


def test_the_pair_of_cls_is_refused_where_there_is_no_cls():
    message = "`cls_pair` must be theta_2 .*`cls_token`='tied'.*but is 'theta_1'"
    with pytest.raises(ValueError, match=message):
        build(cls_pair="theta_1", cls_token="tied")
    with pytest.raises(ValueError, match="`cls_pair` must be theta_2"):
        build(cls_pair="theta_1", causal=True)


def test_a_causal_model_has_no_cls_token():
    causal, tied = build(causal=True), build(cls_token="tied")
    names = {name for name, _ in tied.named_parameters()}
    assert {name for name, _ in causal.named_parameters()} == names
    assert {name for name, _ in build().named_parameters()} - names == {"from_cls", "to_cls"}
    assert not build(causal=True, cls_token="tied").untied
    assert build(cls_token="untied").untied
    with pytest.raises(ValueError, match=r"`cls_token` must be .* causal .*but is 'untied'"):
        build(causal=True, cls_token="untied")


@pytest.mark.parametrize("name", ["tupe", "tupe_relative"])
def test_positions_beyond_the_table_are_refused(name):
    encoding, last = build(name), torch.tensor([[LONGEST - 1]])
    assert encoding.attn_bias(last, last).isfinite().all()
    assert not PositionFacts.of(encoding).extrapolates
    learned = build_encoding("learned", num_heads=1, head_dim=4, max_positions=LONGEST)
    message = f"`positions` must be below max_positions={LONGEST} of the learned .*reach {LONGEST}"
    for at in ((last + 1, last), (last, last + 1)):
        with pytest.raises(ValueError, match=message):
            encoding.attn_bias(*at)
    with pytest.raises(ValueError, match=message):
        learned.rows(last + 1)


def test_with_t5_beside_it():
    """Where nothing is untied, ``tupe+t5`` is ``tupe_relative``."""
    context = {"num_heads": HEADS, "head_dim": DIM, "max_positions": LONGEST, "causal": True}
    beside = build_encoding("tupe+t5", **context)
    inside = build_encoding("tupe_relative", **context)
    tupe, t5 = beside.encodings
    state = {**tupe.state_dict(), **{f"relative.{k}": v for k, v in t5.state_dict().items()}}
    inside.load_state_dict(state)
    at = torch.arange(LONGEST).unsqueeze(0)
    torch.testing.assert_close(beside.attn_bias(at, at), inside.attn_bias(at, at))
    assert beside.logit_scale() == inside.logit_scale() == pytest.approx((2 * DIM) ** -0.5)


def test_one_instance_for_all_layers_and_words_without_positions():
    context = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=WIDTH)
    stack = build_model_encodings("tupe", 3, context, {})
    assert stack.layers[0] is stack.layers[1] is stack.layers[2]
    assert stack.inputs == [None, None, None]
    assert with_absolute_embedding("tupe", "base") == "tupe"
    assert with_absolute_embedding("tupe+t5", "base") == "tupe+t5"
