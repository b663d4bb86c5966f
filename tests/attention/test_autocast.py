"""Autocast (`--amp`) only rounds: the same result, near the first position and near 10,000."""

import pytest
import torch
from attention_cases import (
    DIRECTED,
    FAR,
    FAR_OUT,
    SLOW_FAR_OUT,
    Layer,
    count,
    error,
    more_for_each_mechanism,
    overflows,
    tokens,
)

# Projections, and under softmax attention weights and what encodings multiply, are rounded.
UNITS = 16
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
# bfloat16, which is coarser, near the first position; float16, which ends earlier, far out.
NEAR = more_for_each_mechanism(DIRECTED, [torch.bfloat16, torch.float16])
FAR_AWAY = [
    *more_for_each_mechanism(FAR_OUT, [torch.float16, torch.bfloat16]),
    *(pytest.param(*case, torch.float16, marks=pytest.mark.slow) for case in SLOW_FAR_OUT),
]


@pytest.mark.parametrize(("name", "attention", "causal", "dtype"), NEAR)
def test_autocast_is_the_same_result_with_its_gradient(name, attention, causal, dtype):
    layer = Layer(name, attention, causal=causal, dtype=torch.float32)
    x, at = tokens(2, 12, torch.float32), count(12)
    expected = layer(x, at)
    with torch.autocast("cpu", dtype):
        actual = layer(x, at)
    assert error(actual, expected) <= UNITS * torch.finfo(dtype).eps
    # Of the queries alone: they go through all that the encoding does, and not through v.
    slope, rounded_slope = (
        torch.autograd.grad(y.square().sum(), layer.q_proj.weight)[0] for y in (expected, actual)
    )
    assert error(rounded_slope, slope) <= 2 * UNITS * torch.finfo(dtype).eps


@pytest.mark.parametrize(("name", "attention", "causal", "dtype"), FAR_AWAY)
def test_autocast_is_the_same_result_far_out(name, attention, causal, dtype):
    options = {"normalizer": "encoded"} if overflows(name, attention, dtype) else {}
    layer = Layer(name, attention, causal=causal, dtype=torch.float32, **options)
    x, at = tokens(2, 12, torch.float32), count(12, FAR)
    with torch.no_grad(), torch.autocast("cpu", dtype):
        if name == "xpos" and attention == "vanilla" and dtype == torch.float16:
            # float16 ends at 65,504, which its scale reaches at such a position.
            with pytest.raises(ValueError, match="float16"):
                layer(x, at)
            return
        actual = layer(x, at)
    with torch.no_grad():
        assert error(actual, layer(x, at)) <= UNITS * torch.finfo(dtype).eps


@DTYPES
@pytest.mark.parametrize("causal", [True, False])
def test_sums_of_linear_attention_do_not_round(causal, dtype):
    """Of 4,096 keys the last counts as much as the first, where sums in half precision stop."""
    layer = Layer("none", "linear", causal=causal, dtype=torch.float32)
    q, k, v = (torch.rand(1, 2, 4096, 8).to(dtype).requires_grad_() for _ in range(3))
    positions = {"q_positions": count(4096), "k_positions": count(4096)}
    expected, _ = layer.attention(q, k, v, **positions)
    with torch.autocast("cpu", dtype):
        actual, _ = layer.attention(q, k, v, **positions)
        gradients = torch.autograd.grad(actual.sum(), (q, k, v))
    assert torch.equal(actual, expected)
    for mine, outside in zip(
        gradients, torch.autograd.grad(expected.sum(), (q, k, v)), strict=True
    ):
        assert torch.equal(mine, outside)


LINEAR = [case for case in DIRECTED if case[1] == "linear"]


@pytest.mark.parametrize(
    ("name", "attention", "causal", "given"),
    more_for_each_mechanism(LINEAR, [torch.float32, torch.float64, torch.bfloat16]),
)
def test_linear_attention_gives_what_softmax_does(name, attention, causal, given):
    """In every way in; between its features and the output it computes as without autocast."""
    outputs = {}
    for kind in ("vanilla", attention):
        layer = Layer(name, kind, causal=causal, dtype=given)
        q, k, v = (torch.randn(2, layer.attention.num_heads, 9, 8).to(given) for _ in range(3))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            outputs[kind] = list(every_way_in(layer.attention, q, k, v))
    for one, other in zip(outputs["vanilla"], outputs[attention], strict=True):
        assert one.dtype == other.dtype


def every_way_in(attention, q, k, v):
    at = count(9)
    yield attention(q, k, v, q_positions=at, k_positions=at)[0]
    if attention.causal:
        output, state = attention.step(q, k, v, positions=at)
    else:
        state = attention.remember(k, v, k_positions=at)
        output, _ = attention.attend(q, state, q_positions=at)
    yield output
    if attention.name == "linear":
        sums = [state[name].dtype for name in ("kv", "k_sum", "k_norm")]
        assert sums == [torch.promote_types(v.dtype, torch.float32)] * 3


@DTYPES
@pytest.mark.parametrize("causal", [True, False])
def test_the_output_of_linear_attention_is_rounded_once(causal, dtype):
    layer = Layer("lrpe_type2", "linear", causal=causal, dtype=torch.float32, normalizer="encoded")
    q, k, v = torch.randn(3, 2, 2, 300, 8)
    positions = {"q_positions": count(300), "k_positions": count(300)}
    expected, _ = layer.attention(q, k, v, **positions)
    with torch.autocast("cpu", dtype):
        actual, _ = layer.attention(q, k, v, **positions)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected.to(dtype))
