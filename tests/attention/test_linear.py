"""Linear attention: the formula with each denominator and feature map, and what it refuses."""

import math

import pytest
import torch
from attention_cases import (
    BIDIRECTIONAL,
    DIM,
    DIRECTED,
    HEADS,
    VOCAB,
    Layer,
    count,
    error,
    redraw,
    tokens,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from fairseq_plugins.attention import FEATURE_MAPS, base, build_attention
from fairseq_plugins.attention.normalizers import MIN_COSINE
from fairseq_plugins.encodings import (
    EncodingContext,
    LinearFacts,
    PositionEncoding,
    build_encoding,
)
from fairseq_plugins.kernels import naive_linear_attention
from fairseq_plugins.kernels.normalizer import LEAST_COSINE
from tests.quick import with_choices

CASES = [(name, causal) for name, attention, causal in DIRECTED if attention == "linear"]
every_case = pytest.mark.parametrize(("name", "causal"), CASES)
CONTEXT = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=HEADS * DIM, causal=True)


def build(encoding: PositionEncoding | str | None, *, causal: bool = True, **options):
    if isinstance(encoding, str):
        encoding = build_encoding(
            encoding, num_heads=HEADS, head_dim=DIM, causal=causal, vocab_size=VOCAB
        ).double()
    return build_attention(
        "linear", encoding, num_heads=HEADS, head_dim=DIM, causal=causal, **options
    )


def phi(x: Tensor) -> Tensor:
    return 1 + functional.elu(x)


def algebra(case: tuple[str, bool]) -> tuple[object, ...]:
    """What the formula reads of an encoding: its hooks, and its facts under linear attention."""
    encoding = build(case[0], causal=case[1]).encoding
    facts = LinearFacts.of(encoding)
    return encoding.hooks, facts.keeps_norms, facts.keeps_positive, facts.feature_map, case[1]


DENOMINATORS = [("encoded", MIN_COSINE), ("encoded", 0.0), ("plain", MIN_COSINE), ("none", None)]


@pytest.mark.parametrize(
    ("name", "causal", "normalizer", "floor"),
    [(*case, *chosen) for case, chosen in with_choices(CASES, DENOMINATORS, algebra)],
)
def test_it_is_the_formula(name, causal, normalizer, floor):
    """LRPE, Eq. 31 and 39: phi and the encoding in its order; the denominator as asked for.

    An encoded denominator that may be negative is kept away from zero, which the paper does not
    say how to do; with a floor of 0 at one millionth of its bound. It is a plain one with an
    encoding that changes norms. An encoding may have a feature map of its own.
    """
    attention = build(name, causal=causal, normalizer=normalizer, min_cosine=floor)
    (q, k, v), at = torch.randn(3, 2, HEADS, 150, DIM, dtype=torch.float64), count(150)
    padding = torch.zeros(2, 150, dtype=torch.bool)
    padding[1, 140:] = True
    kept = ~padding[:, None, :, None]
    encoding = attention.encoding
    redraw(encoding, int(base.draw_seed()))
    facts = LinearFacts.of(encoding)
    if normalizer == "encoded" and not facts.keeps_norms:
        normalizer = "plain"
    feature_map = phi if facts.feature_map is None else FEATURE_MAPS[facts.feature_map]
    plain_q, plain_k = feature_map(q), feature_map(k)
    if facts.transform_after_feature_map:
        encoded_q = encoding.transform_query(plain_q, at)
        encoded_k = encoding.transform_key(plain_k, at) * kept
    else:
        encoded_q = feature_map(encoding.transform_query(q, at))
        encoded_k = feature_map(encoding.transform_key(k, at)) * kept
    plain = {"normalizer_q": plain_q, "normalizer_k": plain_k * kept}
    may_be_negative = "transform_key" in encoding.hooks and not facts.keeps_positive
    is_floored = normalizer == "encoded" and may_be_negative
    expected = naive_linear_attention(
        encoded_q,
        encoded_k,
        encoding.transform_value(v, at),
        causal=causal,
        normalize=normalizer != "none",
        min_cosine=max(floor, LEAST_COSINE) if is_floored else 0.0,
        **(plain if normalizer == "plain" else {}),
    )
    expected = encoding.transform_output(expected, at)
    output, weights = attention(q, k, v, q_positions=at, k_positions=at, key_padding_mask=padding)
    assert weights is None
    assert error(output, expected) <= 1e-9


def opposed(length: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of which each feature is negative in the one or the other."""
    q, k = torch.randn(2, 2, HEADS, length, DIM, dtype=torch.float64).abs()
    signs = torch.ones(DIM, dtype=torch.float64)
    signs[::2] = -1
    return q * signs, -k * signs


@pytest.mark.parametrize("name", ["rope", "per", "lrpe_type2", "base+rope"])
@pytest.mark.parametrize("floor", [MIN_COSINE, 0.5])
@pytest.mark.parametrize("causal", [True, False])
def test_plain_denominators_of_relu_can_vanish_and_have_a_floor(name, floor, causal):
    """Where products of plain features are 0 and those of encoded ones are not."""
    options = {"feature_map": "relu", "normalizer": "plain", "min_cosine": floor}
    attention, (q, k) = build(name, causal=causal, **options), opposed(40)
    at = {"q_positions": count(40), "k_positions": count(40)}
    assert not (q.relu() @ k.relu().mT).any()
    v = torch.eye(40, dtype=torch.float64).expand(2, HEADS, -1, -1)
    weights, _ = attention(q, k, v, **at)
    assert weights.abs().max() > 1e-3
    assert weights.abs().sum(-1).max() <= 1 / floor * (1 + 1e-6)


@pytest.mark.parametrize("name", ["none", "cosformer"])
def test_a_plain_denominator_that_bounds_its_numerator_has_no_floor(name):
    options = {"feature_map": "relu", "normalizer": "plain"}
    attention, (q, k) = build(name, **options), opposed(9)
    at = {"q_positions": count(9), "k_positions": count(9)}
    assert attention.min_cosine == 0
    assert not attention(q, k, torch.randn_like(k), **at)[0].any()


def reads_weights(name: str, causal: bool) -> bool:
    """Whether values go in and come out as they are, over an encoded denominator."""
    encoding = build(name, causal=causal).encoding
    return "transform_value" not in encoding.hooks and LinearFacts.of(encoding).keeps_norms


@pytest.mark.parametrize(("name", "causal"), [case for case in CASES if reads_weights(*case)])
def test_an_encoded_denominator_bounds_the_weights(name, causal):
    """The absolute weights of a query sum to at most 1 / MIN_COSINE, for any inputs."""
    attention = build(name, causal=causal, normalizer="encoded")
    q, k = 3 * torch.randn(2, 2, HEADS, 60, DIM, dtype=torch.float64)
    # The values of key t are the unit vector e_t, so that the output is the weights.
    v = torch.eye(60, dtype=torch.float64).expand(2, HEADS, -1, -1)
    weights, _ = attention(q, k, v, q_positions=count(60), k_positions=count(60))
    assert weights.abs().sum(-1).max() <= 1 / MIN_COSINE * (1 + 1e-9)


@pytest.mark.parametrize("normalizer", ["encoded", "plain"])
def test_without_encoding_it_is_a_mean_of_the_values(normalizer):
    attention = build("none", normalizer=normalizer)
    q, k = torch.randn(2, 2, HEADS, 20, DIM, dtype=torch.float64)
    ones = torch.ones(2, HEADS, 20, DIM, dtype=torch.float64)
    output, _ = attention(q, k, ones, q_positions=count(20), k_positions=count(20))
    torch.testing.assert_close(output, ones)


class Doubled(PositionEncoding):
    """Doubles q and k before phi, as an encoding that acts there."""

    transform_after_feature_map = False

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        return 2 * q

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        return 2 * k


@pytest.mark.parametrize("normalizer", ["encoded", "plain"])
def test_an_encoding_may_act_before_the_feature_map(normalizer):
    q, k, v = torch.randn(3, 2, HEADS, 9, DIM, dtype=torch.float64)
    attention = build(Doubled(CONTEXT), normalizer=normalizer)
    plain = {"normalizer_q": phi(q), "normalizer_k": phi(k)}
    # Features that went through phi last are positive: no floor is needed, nor reached.
    expected = naive_linear_attention(
        phi(2 * q), phi(2 * k), v, causal=True, **(plain if normalizer == "plain" else {})
    )
    output, _ = attention(q, k, v, q_positions=count(9), k_positions=count(9))
    assert error(output, expected) <= 1e-12


class TurnedValues(PositionEncoding):
    """Values times 1 + position."""

    def transform_value(self, v: Tensor, positions: Tensor) -> Tensor:
        return v * (1 + positions)[:, None, :, None]


@pytest.mark.parametrize("attention_type", ["vanilla", "linear"])
def test_values_may_be_encoded(attention_type):
    """The hook of rotary values, whole and step by step."""
    (q, k, v), at = torch.randn(3, 1, HEADS, 5, DIM, dtype=torch.float64), count(5)
    shape = {"num_heads": HEADS, "head_dim": DIM, "causal": True}
    encoded = build_attention(attention_type, TurnedValues(CONTEXT), **shape)
    plain = build_attention(attention_type, None, **shape)
    turned = v * torch.arange(1, 6).view(1, 1, 5, 1)
    expected, _ = plain(q, k, turned, q_positions=at, k_positions=at)
    output, _ = encoded(q, k, v, q_positions=at, k_positions=at)
    assert error(output, expected) <= 1e-12
    state = None
    for s in range(5):
        now = slice(s, s + 1)
        step, state = encoded.step(
            q[:, :, now], k[:, :, now], v[:, :, now], positions=count(1, s), state=state
        )
        assert error(step, expected[:, :, now]) <= 1e-12


@pytest.mark.parametrize("name", [n for n, attention in BIDIRECTIONAL if attention == "linear"])
def test_nothing_of_padding_reaches_the_sums(name):
    """Not even NaN, which zero weights would let through."""
    attention = build(name, causal=False)
    q, k, v = torch.randn(3, 1, HEADS, 6, DIM, dtype=torch.float64)
    k[:, :, 4:] = v[:, :, 4:] = float("nan")
    padding = torch.tensor([[False] * 4 + [True] * 2])
    output, _ = attention(
        q, k, v, q_positions=count(6), k_positions=count(6), key_padding_mask=padding
    )
    short, _ = attention(q, k[:, :, :4], v[:, :, :4], q_positions=count(6), k_positions=count(4))
    assert error(output, short) <= 1e-12


@pytest.mark.parametrize("causal", [True, False])
def test_masks_and_weights_that_it_cannot_honour_are_refused(causal):
    attention = build("rope", causal=causal)
    q = torch.randn(1, HEADS, 4, DIM, dtype=torch.float64)
    at = {"q_positions": count(4), "k_positions": count(4)}
    with pytest.raises(ValueError, match="`need_weights` must be False for linear attention"):
        attention(q, q, q, need_weights=True, **at)
    for mask in (torch.zeros(4, 4, dtype=torch.bool), torch.zeros(4, 4)):
        with pytest.raises(ValueError, match=r"`attn_mask` must be None .*\(4, 4\)"):
            attention(q, q, q, attn_mask=mask, **at)
    state = attention.remember(q, q, k_positions=count(4))
    with pytest.raises(ValueError, match="`need_weights` must be False"):
        attention.attend(q, state, q_positions=count(4), need_weights=True)


def test_causal_attention_to_other_keys_is_refused():
    q, k = torch.randn(1, HEADS, 3, DIM), torch.randn(1, HEADS, 5, DIM)
    with pytest.raises(ValueError, match="one length, but have 3 and 5"):
        build(None)(q, k, k, q_positions=count(3), k_positions=count(5))


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match=r"`feature_map` must be one of .*'elu'.*but is 'exp'"):
        build("rope", feature_map="exp")
    with pytest.raises(ValueError, match=r"`normalizer` must be one of .*but is 'paper'"):
        build("rope", normalizer="paper")


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_floor_is_a_share(share):
    with pytest.raises(ValueError, match=f"`min_cosine` must be between 0 and 1, but is {share}"):
        build("rope", normalizer="encoded", min_cosine=share)


def test_no_softmax_path_is_touched(monkeypatch):
    def fail(*args, **options):
        raise AssertionError("linear attention must not call scaled_dot_product_attention")

    monkeypatch.setattr(functional, "scaled_dot_product_attention", fail)
    Layer("rope", "linear", causal=True)(tokens(1, 5), count(5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_feature_map_is_positive_in_half_precision(dtype):
    """1 + elu(x) as written is 0 from x = -8 on in bfloat16, and the denominator with it."""
    assert (FEATURE_MAPS["elu"](torch.linspace(-8, 8, 100).to(dtype)) > 0).all()
    assert 1 + functional.elu(torch.tensor(-8.0, dtype=torch.bfloat16)) == 0


@given(st.floats(-80, 80))
def test_the_feature_map_is_one_plus_elu(number):
    x = torch.tensor(number, dtype=torch.float64, requires_grad=True)
    value = FEATURE_MAPS["elu"](x)
    assert value.item() == pytest.approx(1 + max(number, 0) + math.expm1(min(number, 0)))
    (gradient,) = torch.autograd.grad(value, x)
    assert gradient.item() == pytest.approx(math.exp(min(number, 0)))


def test_the_feature_map_of_permuteformer():
    x = torch.tensor([-2.0, 0.0, 3.0])
    torch.testing.assert_close(FEATURE_MAPS["relu_shifted"](x), torch.tensor([1e-3, 1e-3, 3.001]))


@pytest.mark.parametrize("name", sorted(FEATURE_MAPS))
def test_feature_maps_are_finite_everywhere_with_their_gradients(name):
    x = torch.tensor([-1e4, -100.0, -1e-3, 0.0, 1e-3, 100.0, 1e4], requires_grad=True)
    value = FEATURE_MAPS[name](x)
    assert value.isfinite().all()
    assert (value >= 0).all()
    value.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    attention = build("rope", feature_map=name)
    q, k, v = torch.randn(3, 1, HEADS, 6, DIM, dtype=torch.float64)
    assert attention(q, k, v, q_positions=count(6), k_positions=count(6))[0].isfinite().all()
