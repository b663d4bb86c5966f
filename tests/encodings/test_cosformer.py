"""cosFormer: scores times a cosine of the distance, with a constant M."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.attention import LinearAttention, SoftmaxAttention
from fairseq_plugins.attention.normalizers import MIN_COSINE
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import LinearFacts, build_encoding
from fairseq_plugins.encodings.position_bounds import with_end
from fairseq_plugins.kernels import naive_linear_attention

HEADS, DIM, LONGEST = 2, 6, 50


def build(**options):
    return build_encoding(
        "cosformer", num_heads=HEADS, head_dim=DIM, max_positions=LONGEST, **options
    )


def cosines(at: torch.Tensor, length: int) -> torch.Tensor:
    """cos(pi (t - s) / 2M): (T, T) float64."""
    return torch.cos(math.pi / (2 * length) * (at - at.mT).double())


@pytest.mark.parametrize("length", [0, 7, 1000])
@given(st.integers(0, 2**31))
def test_scores_are_products_times_a_cosine_of_the_distance(length, seed):
    torch.manual_seed(seed)
    encoding = build(length=length)
    q, k = torch.randn(2, 2, HEADS, 9, DIM, dtype=torch.float64)
    at = torch.randint(0, 10_000, (1, 9))
    encoded_q, encoded_k = encoding.transform_query(q, at), encoding.transform_key(k, at)
    assert encoded_q.shape == (2, HEADS, 9, 2 * DIM)
    expected = (q @ k.mT) * cosines(at, length or LONGEST)
    # Cosines are kept in float32.
    torch.testing.assert_close(encoded_q @ encoded_k.mT, expected, atol=2e-6, rtol=0)


def test_features_do_not_depend_on_what_comes_along():
    """Not on the batch's length nor its positions: decoding is the model that was trained."""
    encoding, x = build(), torch.randn(1, HEADS, 40, DIM)
    whole = encoding.transform_key(x, torch.arange(40).unsqueeze(0))
    for s in range(40):
        alone = encoding.transform_key(x[:, :, s : s + 1], torch.tensor([[s]]))
        assert torch.equal(alone, whole[:, :, s : s + 1])
    encoding.transform_key(x, torch.arange(40).unsqueeze(0) + 5000)
    assert torch.equal(encoding.transform_key(x, torch.arange(40).unsqueeze(0)), whole)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_attention_is_the_papers(causal):
    """sum relu(q).relu(k) cos v over the sum of the same weights, which are positive up to M."""
    attention = LinearAttention(
        build(causal=causal), num_heads=HEADS, head_dim=DIM, causal=causal, feature_map="elu"
    )
    q, k, v = torch.randn(3, 2, HEADS, LONGEST, DIM, dtype=torch.float64)
    at = torch.arange(LONGEST).unsqueeze(0)
    weights = (q.relu() @ k.relu().mT) * cosines(at, LONGEST)
    weights = weights.tril() if causal else weights
    assert weights.min() >= 0
    expected = weights @ v / weights.sum(-1, keepdim=True).clamp(min=1e-6)
    output, _ = attention(q, k, v, q_positions=at, k_positions=at)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_softmax_attention_gets_the_product_as_logits():
    attention = SoftmaxAttention(build(length=20), num_heads=HEADS, head_dim=DIM, causal=False)
    q, k, v = torch.randn(3, 2, HEADS, LONGEST, DIM, dtype=torch.float64)
    at = torch.arange(LONGEST).unsqueeze(0)
    weights = ((q @ k.mT) * cosines(at, 20) / DIM**0.5).softmax(-1)
    output, _ = attention(q, k, v, q_positions=at, k_positions=at)
    torch.testing.assert_close(output, weights @ v, atol=1e-6, rtol=0)


def test_a_length_below_the_models_has_negative_weights_and_a_floor_under_their_sum():
    encoding = build(length=10, causal=True)
    assert LinearFacts.of(build()).keeps_positive
    assert not LinearFacts.of(encoding).keeps_positive
    shape = {"num_heads": HEADS, "head_dim": DIM, "causal": True}
    attention = LinearAttention(encoding, **shape, normalizer="encoded")
    q, k, v = torch.randn(3, 2, HEADS, LONGEST, DIM, dtype=torch.float64)
    at = torch.arange(LONGEST).unsqueeze(0)
    encoded_q, encoded_k = (encoding.transform_key(x.relu(), at) for x in (q, k))
    assert (encoded_q @ encoded_k.mT).min() < 0
    expected = naive_linear_attention(encoded_q, encoded_k, v, causal=True, min_cosine=MIN_COSINE)
    output, _ = attention(q, k, v, q_positions=at, k_positions=at)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("causal", [True, False])
def test_distances_whose_weights_would_be_negative_are_refused(causal):
    """Of the positions; where they begin does not matter, nor does it where there is a floor."""
    q, k, v = torch.randn(3, 1, HEADS, LONGEST + 1, DIM)
    at = torch.arange(5000, 5000 + LONGEST + 1).unsqueeze(0)

    def attend(count: int, **options):
        encoding = build(causal=causal, **options)
        attention = LinearAttention(encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
        rows = (x[:, :, :count] for x in (q, k, v))
        return attention(*rows, q_positions=at[:, :count], k_positions=at[:, :count])

    attend(LONGEST)
    with pytest.raises(ValueError, match=f"less than {LONGEST} apart .* cosformer, .* up to 50"):
        attend(LONGEST + 1)
    attend(LONGEST + 1, length=2 * LONGEST)
    attend(LONGEST + 1, length=LONGEST // 2)


def test_distances_of_drawn_positions_are_refused_too():
    """As in a whole model, which draws them before the attention."""
    encoding = build_encoding(
        "randomised+cosformer", num_heads=HEADS, head_dim=DIM, max_positions=16, causal=True
    )
    attention = LinearAttention(encoding, num_heads=HEADS, head_dim=DIM, causal=True)
    q, k, v = torch.randn(3, 1, HEADS, 128, DIM)
    at = torch.arange(128).unsqueeze(0)
    with pytest.raises(ValueError, match=r"less than 128 apart .* randomised\+cosformer"):
        attention(q, k, v, q_positions=at, k_positions=at)
    attention.eval()(q, k, v, q_positions=at, k_positions=at)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_distance(side):
    """In a batch that is padded beyond the span, as to a multiple of 64."""
    attention = LinearAttention(build(causal=True), num_heads=HEADS, head_dim=DIM, causal=True)
    padding = torch.ones(1, 64, dtype=torch.bool)
    kept = slice(64 - LONGEST, 64) if side == "left" else slice(LONGEST)
    padding[:, kept] = False
    (q, k, v), at = torch.randn(3, 1, HEADS, 64, DIM), Positions.of(padding, 64).index
    output, _ = attention(q, k, v, q_positions=at, k_positions=at, key_padding_mask=padding)
    step, _ = attention.step(q, k, v, positions=at, key_padding_mask=padding)
    q, k, v, at = q[:, :, kept], k[:, :, kept], v[:, :, kept], at[:, kept]
    alone, _ = attention(q, k, v, q_positions=at, k_positions=at)
    torch.testing.assert_close(output[:, :, kept], alone)
    torch.testing.assert_close(step[:, :, kept], alone)


def test_distances_are_those_within_a_sequence():
    """Where another one of the batch begins is no matter."""
    attention = LinearAttention(build(causal=True), num_heads=HEADS, head_dim=DIM, causal=True)
    (q, k, v), at = torch.randn(3, 2, HEADS, 9, DIM), torch.tensor([[0], [5000]]) + torch.arange(9)
    output, _ = attention(q, k, v, q_positions=at, k_positions=at)
    for b in range(2):
        row = slice(b, b + 1)
        alone, _ = attention(q[row], k[row], v[row], q_positions=at[row], k_positions=at[row])
        torch.testing.assert_close(output[row], alone)


def refuses(call: Callable[[], Any]) -> Any:
    """The message of a refusal, or what the call returned."""
    try:
        return call()
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("starts", [(0, 0), (4970, 5000)])
@pytest.mark.parametrize("says_end", [True, False])
@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 2**31))
def test_steps_refuse_what_one_pass_does_and_nothing_else(starts, says_end, sizes, seed):
    """Rows may start anywhere, and tokens leave gaps."""
    torch.manual_seed(seed)
    attention = LinearAttention(build(causal=True), num_heads=HEADS, head_dim=DIM, causal=True)
    q, k, v = torch.randn(3, 2, HEADS, sum(sizes), DIM)
    at = torch.randint(1, 3, (2, sum(sizes))).cumsum(1) + torch.tensor(starts).unsqueeze(1)

    def place(now: slice) -> Tensor:
        return with_end(at[:, now].clone(), int(at[:, : now.stop].max()) + 1 if says_end else None)

    def steps() -> Tensor:
        outputs, state, start = [], None, 0
        for size in sizes:
            now = slice(start, start + size)
            rows = (x[:, :, now] for x in (q, k, v))
            output, state = attention.step(*rows, positions=place(now), state=state)
            outputs.append(output)
            start += size
        return torch.cat(outputs, 2)

    whole = place(slice(0, sum(sizes)))
    expected = refuses(lambda: attention(q, k, v, q_positions=whole, k_positions=whole)[0])
    found = refuses(steps)
    if isinstance(expected, str):
        assert "must be less than 50 apart" in expected
        assert "must be less than 50 apart" in found
    else:
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("says_end", [True, False])
@pytest.mark.parametrize("start", [0, 5000])
@given(st.integers(1, 60), st.integers(0, 100), st.integers(0, 100))
def test_remembered_keys_are_refused_as_in_one_pass(start, says_end, keys, first, query):
    attention = LinearAttention(build(), num_heads=HEADS, head_dim=DIM, causal=False)
    q, (k, v) = torch.randn(2, HEADS, 1, DIM), torch.randn(2, 2, HEADS, keys, DIM)
    k_at = start + first + torch.arange(keys).unsqueeze(0)
    q_at = torch.tensor([[start + query]])
    if says_end:
        k_at, q_at = (with_end(at, int(at.max()) + 1) for at in (k_at, q_at))

    def apart() -> Tensor:
        state = attention.remember(k, v, k_positions=k_at)
        return attention.attend(q, state, q_positions=q_at)[0]

    expected = refuses(lambda: attention(q, k, v, q_positions=q_at, k_positions=k_at)[0])
    found = refuses(apart)
    if isinstance(expected, str):
        assert "must be less than 50 apart" in found
    else:
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match=r"`length` must be positive, or 0 .*=50, but is -1"):
        build(length=-1)
