"""bfloat16 and float16 only round: the same result, near the first position and near 10,000."""

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

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import build_encoding

# Rounding of q, k, v and the weights, each once: a few units of the dtype's precision.
UNITS = 8
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


# The cosine transform sums positive features up in one, which turns once in six positions: encoded
# denominators come near zero, where rounding is anything. Its scores are as exact as others'.
NEAR_ZERO = {"lrpe_dct"}
# bfloat16, which is coarser, near the first position; float16, which ends earlier, far out.
NEAR = more_for_each_mechanism(DIRECTED, [torch.bfloat16, torch.float16])
FAR_AWAY = [
    *more_for_each_mechanism(FAR_OUT, [torch.float16, torch.bfloat16]),
    *(pytest.param(*case, torch.float16, marks=pytest.mark.slow) for case in SLOW_FAR_OUT),
]


@pytest.mark.parametrize(("name", "attention", "causal", "dtype"), NEAR)
def test_half_precision_is_the_same_result(name, attention, causal, dtype):
    _check(name, attention, causal, dtype, 0)


@pytest.mark.parametrize(("name", "attention", "causal", "dtype"), FAR_AWAY)
def test_half_precision_is_the_same_result_far_out(name, attention, causal, dtype):
    # FLOATER's vectors grow with the position, to 119 at 10,000, and softmax multiplies the
    # rounding of a logit by its size.
    _check(name, attention, causal, dtype, 1000 if name == "floater" else FAR)


def _check(name, attention, causal, dtype, start):
    near_zero = attention == "linear" and name in NEAR_ZERO
    options = {"normalizer": "plain"} if near_zero else {}
    if overflows(name, attention, dtype) and not near_zero:
        options = {"normalizer": "encoded"}
    wide = Layer(name, attention, causal=causal, dtype=torch.float32, **options)
    with torch.no_grad():
        for parameter in wide.parameters():
            parameter.copy_(parameter.to(dtype))
    narrow = Layer(name, attention, causal=causal, dtype=dtype, **options)
    narrow.load_state_dict(wide.state_dict())
    x = tokens(2, 12, dtype)
    with torch.no_grad():
        expected = wide(x.float(), count(12, start))
        if name == "xpos" and attention == "vanilla" and dtype == torch.float16 and start:
            # float16 ends at 65,504, which its scale reaches at such a position.
            with pytest.raises(ValueError, match="float16"):
                narrow(x, count(12, start))
            return
        actual = narrow(x, count(12, start))
    assert actual.dtype == dtype
    assert error(actual, expected) <= UNITS * torch.finfo(dtype).eps


def build(name, dtype, *, causal=True, heads=1, dim=8, **options):
    generator = torch.Generator().manual_seed(0)
    shape = {"num_heads": heads, "head_dim": dim, "causal": causal}
    encoding = build_encoding(name, generator=generator, **shape)
    return build_attention("linear", encoding, **shape, **options).to(dtype)


@DTYPES
@pytest.mark.parametrize("name", ["lrpe_type8", "lrpe_dct"])
@pytest.mark.parametrize("normalizer", ["encoded", "clamped"])
def test_rounding_turns_no_sign_of_sums_that_cancel(name, normalizer, dtype):
    """Of the same rounded inputs; a sum that is near zero can have either sign."""
    q, k, v = torch.randn(3, 1, 8, 384, 32).to(dtype)
    options = {"heads": 8, "dim": 32, "normalizer": normalizer}
    if normalizer == "clamped":
        options["epsilon"] = 1.0
    at = {"q_positions": count(384), "k_positions": count(384)}
    with torch.no_grad():
        narrow, wide = (build(name, kind, **options) for kind in (dtype, torch.float64))
        wide.load_state_dict(narrow.state_dict())  # rounded parameters, too
        actual = narrow(q, k, v, **at)[0]
        expected = wide(q.double(), k.double(), v.double(), **at)[0]
    assert actual.dtype == dtype
    assert error(actual, expected) <= 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("name", "normalizer", "feature_map"),
    [
        ("lrpe_identity", "plain", "elu"),
        ("lrpe_dct", "plain", "relu"),
        ("lrpe_dct", "encoded", "elu"),
        ("rope_learned", "plain", "relu"),
        ("lrpe_type3", "encoded", "relu"),
    ],
)
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_in_float16_are_finite_and_right(name, normalizer, feature_map, causal):
    """Those of small features are beyond float16, and those of the inputs are not."""
    options = {"normalizer": normalizer, "feature_map": feature_map, "dim": 4, "causal": causal}
    for seed, length in enumerate([1, 2, 2, 3, 7, 20]):
        torch.manual_seed(seed)
        inputs = (torch.randn(3, 1, 1, length, 4) * (1 + 4 * (seed % 3))).half()
        found = []
        for dtype in (torch.float16, torch.float64):
            attention = build(name, dtype, **options)
            leaves = [x.to(dtype).requires_grad_() for x in inputs]
            at = {"q_positions": count(length), "k_positions": count(length)}
            output, _ = attention(*leaves, **at)
            leaves += attention.parameters()
            grads = torch.autograd.grad(output.sum(), leaves)
            found.append(torch.cat([g.flatten().double() for g in grads]))
        assert found[0].isfinite().all()
        assert error(*found) <= 0.02


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [-4, -8, -10, -20])
def test_one_key_is_its_value_however_small_its_features(size, causal):
    """A weighted mean of one; its gradient to the query is 0."""
    attention = build("none", torch.float32, causal=causal)
    x = torch.full((1, 1, 1, 8), float(size), requires_grad=True)
    v = torch.linspace(-1, 1, 8).view(1, 1, 1, 8)
    output, _ = attention(x, x.detach(), v, q_positions=count(1), k_positions=count(1))
    assert error(output, v) <= 1e-6
    (gradient,) = torch.autograd.grad(output.sum(), x)
    assert gradient.abs().max() <= 1e-5
