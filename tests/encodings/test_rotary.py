"""Rotary variants: relativity through whole attentions, closed forms, range and refusals."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import IncompatibleEncodingError, PositionFacts, build_encoding
from fairseq_plugins.encodings.rotation import as_complex

HEADS, DIM, MAX = 2, 8, 64
ATTENTIONS = ("vanilla", "linear")
VARIANTS = ("rope_learned", "rope_values", "rope_interpolated", "rope_ntk", "xpos")


def build(name: str, dim: int = DIM, **options):
    options = {"max_positions": MAX, "causal": True, **options}
    return build_encoding(name, num_heads=HEADS, head_dim=dim, **options)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def attend(encoding, kind: str, qkv: Tensor, at: Tensor, causal: bool = True, **options) -> Tensor:
    attention = build_attention(
        kind, encoding, num_heads=HEADS, head_dim=DIM, causal=causal, **options
    )
    output: Tensor = attention(*qkv, q_positions=at, k_positions=at)[0]
    return output


def turns(x: Tensor, at: Tensor, frequencies: list[float]) -> Tensor:
    """Interleaved pairs as complex numbers, each times exp(i s frequency): (..., T, D / 2)."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    angles = at.double().unsqueeze(-1) * torch.tensor(frequencies, dtype=torch.float64)
    return pairs * torch.polar(torch.ones_like(angles), angles)


def rope_frequencies(dim: int = DIM, base: float = 10000.0) -> list[float]:
    return [base ** (-2 * j / dim) for j in range(dim // 2)]


def as_features(pairs: Tensor) -> Tensor:
    return torch.view_as_real(pairs).flatten(-2)


# Layouts in memory.


def unusual(layout: str) -> Tensor:
    """(1, H, 5, D) that PyTorch cannot see as complex numbers without a copy."""
    if layout == "odd_stride":
        return draw(1, HEADS, 5, DIM + 1)[..., :DIM]
    if layout == "odd_offset":
        return draw(1 + HEADS * 5 * DIM)[1:].view(1, HEADS, 5, DIM)
    return draw(1, HEADS, DIM, 5).mT


@pytest.mark.parametrize("name", ["rope", "rope_values", "lrpe_type2"])
@pytest.mark.parametrize("layout", ["odd_stride", "odd_offset", "features_first"])
def test_how_heads_lie_in_memory_does_not_matter(name, layout):
    """As slices of one projection for queries, keys and values, or of a flat buffer."""
    encoding, x, at = build(name).double(), unusual(layout), torch.arange(5).unsqueeze(0)
    dense = x.clone(memory_format=torch.contiguous_format)
    for hook in (encoding.transform_query, encoding.transform_key, encoding.transform_value):
        assert torch.equal(hook(x, at), hook(dense, at))
    gradient, expected = (
        torch.autograd.grad(encoding.transform_query(y, at).square().sum(), y)[0]
        for y in (x.requires_grad_(), dense.requires_grad_())
    )
    assert torch.equal(gradient, expected)


def test_heads_of_a_projection_are_turned_without_a_copy():
    """(B, T, H D) as (B, H, T, D), whose pairs lie beside each other."""
    x = draw(2, 5, HEADS * DIM).unflatten(-1, (HEADS, DIM)).transpose(1, 2)
    assert as_complex(x).data_ptr() == x.data_ptr()


# Values.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_turned_back_values_depend_on_differences_alone(kind, causal):
    qkv, at = draw(3, 2, HEADS, 9, DIM), torch.tensor([[0, 1, 2, 5, 9, 10, 11, 30, 70]])
    turned = build("rope_values", causal=causal)
    as_is = build("rope_values", causal=causal, output="as_is")
    assert PositionFacts.of(turned).is_relative
    assert not PositionFacts.of(as_is).is_relative
    first, shifted = (attend(turned, kind, qkv, p, causal) for p in (at, at + 5000))
    torch.testing.assert_close(first, shifted, atol=5e-6, rtol=0)
    first, shifted = (attend(as_is, kind, qkv, p, causal) for p in (at, at + 5000))
    assert (first - shifted).abs().max() > 0.1, "the values carry absolute positions"


@pytest.mark.parametrize("beside", ["shaw", "sinusoidal_rpe", "learnable_sinusoidal_rpe"])
def test_turned_back_values_stay_relative_beside_vectors_that_join_them(beside):
    qkv, at = draw(3, 2, HEADS, 9, DIM), torch.tensor([[0, 1, 2, 5, 9, 10, 11, 30, 70]])
    encoding = build(f"rope_values+{beside}")
    assert PositionFacts.of(encoding).is_relative
    first, shifted = (attend(encoding, "vanilla", qkv, p, True) for p in (at, at + 500))
    torch.testing.assert_close(first, shifted, atol=5e-6, rtol=0)


@pytest.mark.parametrize("layout", ["interleaved", "half_split"])
def test_the_output_is_the_sum_of_values_turned_by_differences(layout):
    """sum_t w_st R(t - s) v_t with the weights of rope, pair by pair from the definition."""
    qkv, at = draw(3, 1, HEADS, 6, DIM), torch.tensor([[0, 3, 4, 7, 100, 10_000]])
    rope = build_attention(
        "vanilla", build("rope", layout=layout), num_heads=HEADS, head_dim=DIM, causal=True
    )
    _, weights = rope(*qkv, q_positions=at, k_positions=at, need_weights=True)
    v = qkv[2]
    if layout == "half_split":
        v = torch.stack(v.chunk(2, dim=-1), dim=-1).flatten(-2)
    expected = torch.empty_like(v)
    for s in range(6):
        values = as_features(turns(v, at[0] - at[0, s], rope_frequencies()))
        expected[:, :, s] = (weights[:, :, s : s + 1] @ values).squeeze(2)
    if layout == "half_split":
        expected = torch.cat((expected[..., ::2], expected[..., 1::2]), dim=-1)
    actual = attend(build("rope_values", layout=layout), "vanilla", qkv, at)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


def test_values_as_they_are_need_no_decoding():
    assert build("rope_values", output="as_is").hooks == {
        "transform_query",
        "transform_key",
        "transform_value",
    }
    assert "transform_output" in build("rope_values").hooks


def test_half_of_the_values_may_stay_unturned():
    encoding, v = build("rope_values", rotated="half"), draw(1, HEADS, 3, DIM)
    at = torch.tensor([[4, 5, 6]])
    turned = encoding.transform_value(v, at)
    assert torch.equal(turned[..., DIM // 2 :], v[..., DIM // 2 :])
    torch.testing.assert_close(encoding.transform_output(turned, at), v, atol=1e-6, rtol=0)


# Angles: learned, interpolated, NTK.


def test_learned_rope_is_the_identity_row_of_the_ablation():
    learned, row = build("rope_learned"), build("lrpe_identity")
    row.load_state_dict(learned.state_dict())
    x, at = draw(1, HEADS, 4, DIM), torch.tensor([[0, 9, 400, 10_000]])
    assert torch.equal(learned.transform_query(x, at), row.transform_query(x, at))
    assert [name for name, _ in learned.named_parameters()] == ["theta"]


@pytest.mark.parametrize("name", ["rope_interpolated", "rope_ntk"])
def test_a_factor_of_one_is_rope(name):
    x, at = draw(1, HEADS, 4, DIM), torch.tensor([[0, 9, 400, 10_000]])
    plain = build("rope").transform_query(x, at)
    torch.testing.assert_close(build(name, factor=1).transform_query(x, at), plain)
    assert (build(name).transform_query(x, at) - plain).abs().max() > 0.1, "the default is not one"


@pytest.mark.parametrize("factor", [2.0, 3.5])
@pytest.mark.parametrize("base", [10000.0, 700.0])
@pytest.mark.parametrize("dim", [4, 8, 32])
def test_scaled_angles_are_the_formulas_far_out(dim, base, factor):
    at = torch.tensor([[0, 1, 63, 1000, 10_000]])
    x = draw(1, HEADS, 5, dim, dtype=torch.float32)
    stretched = [angle / factor for angle in rope_frequencies(dim, base)]
    ntk = rope_frequencies(dim, base * factor ** (dim / (dim - 2)))
    for name, frequencies in (("rope_interpolated", stretched), ("rope_ntk", ntk)):
        actual = build(name, dim, base=base, factor=factor).transform_key(x, at)
        expected = as_features(turns(x, at, frequencies)).float()
        torch.testing.assert_close(actual, expected, atol=2e-6, rtol=0, msg=name)


def test_interpolated_positions_fall_between_those_of_rope():
    """Position f s under the factor f is position s; the slowest pair of NTK does the same."""
    x, at = draw(1, HEADS, 5, DIM), torch.tensor([[0, 1, 5, 60, 2500]])
    plain = build("rope").transform_query(x, at)
    interpolated = build("rope_interpolated", factor=4).transform_query(x, 4 * at)
    torch.testing.assert_close(interpolated, plain)
    ntk = build("rope_ntk", factor=4)
    torch.testing.assert_close(ntk.transform_query(x, 4 * at)[..., -2:], plain[..., -2:])
    torch.testing.assert_close(ntk.transform_query(x, at)[..., :2], plain[..., :2])


def test_half_of_the_features_have_their_own_ntk_base():
    x, at = draw(1, HEADS, 3, 16, dtype=torch.float32), torch.tensor([[1, 50, 900]])
    actual = build("rope_ntk", 16, rotated="half", factor=4).transform_query(x, at)
    expected = as_features(turns(x[..., :8], at, rope_frequencies(8, 1e4 * 4 ** (8 / 6))))
    torch.testing.assert_close(actual[..., :8], expected.float(), atol=1e-6, rtol=0)
    assert torch.equal(actual[..., 8:], x[..., 8:])


# xPos.


def xpos_scores(q: Tensor, k: Tensor, at: Tensor, scale_base: float, gamma: float) -> Tensor:
    """sum_j zeta_j^((s-t)/scale_base) Re(q_j conj(k_j) exp(i (s-t) theta_j)), in float64."""
    count = q.size(-1) // 2
    zeta = torch.tensor([(j / count + gamma) / (1 + gamma) for j in range(count)]).double()
    theta = torch.tensor(rope_frequencies(2 * count), dtype=torch.float64)
    distance = (at.unsqueeze(-1) - at.unsqueeze(-2)).double()[:, None, :, :, None]
    q_pairs, k_pairs = (turns(x, at * 0, [0.0] * count) for x in (q, k))
    products = q_pairs.unsqueeze(-2) * k_pairs.conj().unsqueeze(-3)
    phases = torch.polar(torch.ones_like(distance * theta), distance * theta)
    return (zeta ** (distance / scale_base) * (products * phases).real).sum(-1)


@pytest.mark.parametrize(("scale_base", "gamma"), [(512.0, 0.4), (300.0, 1.0)])
@pytest.mark.parametrize("start", [0, 500, 10_000])
def test_xpos_scores_are_the_closed_form(start, scale_base, gamma):
    at = torch.tensor([[0, 1, 2, 10, 63, 200, 511]]) + start
    q, k = draw(2, 1, HEADS, 7, DIM)
    encoding = build("xpos", scale_base=scale_base, gamma=gamma)
    scores = encoding.transform_query(q, at) @ encoding.transform_key(k, at).mT
    past = at.unsqueeze(-1) >= at.unsqueeze(-2)
    expected = xpos_scores(q, k, at, scale_base, gamma)
    torch.testing.assert_close(
        scores.where(past, 0.0), expected.where(past, 0.0), atol=5e-6, rtol=0
    )


@pytest.mark.parametrize("kind", ATTENTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_xpos_at_ten_thousand_is_xpos_at_zero(kind, dtype):
    """Whole attentions with the default denominator, and their gradients."""
    qkv, at = draw(3, 1, HEADS, 8, DIM, dtype=dtype), torch.arange(8).unsqueeze(0) * 7
    results = []
    for shift in (0, 10_000):
        inputs = qkv.clone().requires_grad_()
        output = attend(build("xpos"), kind, inputs, at + shift)
        (gradient,) = torch.autograd.grad(output.float().square().sum(), [inputs])
        results.append((output, gradient))
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 0.15}[dtype]
    for first, shifted in zip(*results, strict=True):
        assert shifted.dtype == dtype
        torch.testing.assert_close(shifted, first, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", ATTENTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_xpos_is_finite_over_all_its_positions(kind, dtype):
    """Also the hidden scores, which are the largest: added to -inf, an infinite one is NaN."""
    encoding = build("xpos")
    _, last = encoding.position_range(dtype)
    at = torch.linspace(0, last, 40).long().unsqueeze(0)
    assert at[0, -1] == last
    # Few features have sums near 0, whose clamp would be another test.
    options = {"normalizer": "encoded"} if kind == "linear" else {}
    attention = build_attention(
        kind, encoding, num_heads=HEADS, head_dim=DIM, causal=True, **options
    )
    padding = torch.zeros(1, 40, dtype=torch.bool)
    padding[:, 20] = True
    qkv = (4 * draw(3, 1, HEADS, 40, DIM, dtype=dtype)).requires_grad_()
    variants = [{}, {"key_padding_mask": padding}]
    if kind == "vanilla":
        variants.append({"need_weights": True})
    for options in variants:
        output, _ = attention(*qkv, q_positions=at, k_positions=at, **options)
        (gradient,) = torch.autograd.grad(output.float().sum(), [qkv])
        assert output.isfinite().all(), options
        assert gradient.isfinite().all(), options


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_xpos_ends_at_a_position_that_it_names(dtype):
    last = MAX // 2 + 2832 if dtype == torch.float16 else 32_861
    encoding, x = build("xpos"), draw(1, HEADS, 1, DIM, dtype=dtype)
    assert encoding.transform_key(x, torch.tensor([[last]])).isfinite().all()
    for transform in (encoding.transform_key, encoding.transform_query):
        with pytest.raises(ValueError, match=f"must be at most {last} .*reach {last + 1};"):
            transform(x, torch.tensor([[last + 1]]))


def test_the_end_of_float16_holds_where_the_table_is_longer():
    encoding, at = build("xpos"), torch.tensor([[5000]])
    encoding.transform_key(draw(1, HEADS, 1, DIM), at)
    with pytest.raises(ValueError, match=r"float16 .*but reach 5000"):
        encoding.transform_key(draw(1, HEADS, 1, DIM, dtype=torch.float16), at)


def test_a_longer_scale_base_reaches_further():
    near, far = build("xpos"), build("xpos", scale_base=5120.0)
    assert far.position_range(torch.float32)[1] > 9 * near.position_range(torch.float32)[1]
    with pytest.raises(ValueError, match=r"`max_positions` must be at most 32862 .*is 50000"):
        build("xpos", max_positions=50_000)
    long = build("xpos", max_positions=50_000, scale_base=1024.0)
    x = draw(1, HEADS, 2, DIM, dtype=torch.float32)
    assert long.transform_key(x, torch.tensor([[0, 49_999]])).isfinite().all()


@pytest.mark.parametrize("size", [32_862, 8192])
def test_position_0_is_in_the_range_of_float16_whatever_the_longest(size):
    encoding = build("xpos", max_positions=size)
    x = torch.full((1, HEADS, 1, DIM), 32.0, dtype=torch.float16)
    for encoded in (encoding.transform_query, encoding.transform_key):
        result = encoded(x, torch.tensor([[0]]))
        assert result.isfinite().all()
        assert (result.abs() >= torch.finfo(torch.float16).tiny).any()


def test_xpos_scores_do_not_depend_on_the_longest_position_of_the_model():
    at, (q, k) = torch.arange(50).unsqueeze(0), draw(2, 1, HEADS, 50, DIM)
    scores = [
        e.transform_query(q, at) @ e.transform_key(k, at).mT
        for e in (build("xpos", max_positions=n) for n in (10, 1000, 10_000))
    ]
    for other in scores[1:]:
        torch.testing.assert_close(other.tril(), scores[0].tril(), atol=5e-6, rtol=0)


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_xpos_cannot_look_ahead(kind):
    with pytest.raises(IncompatibleEncodingError, match="'xpos': its scores with later keys"):
        build_attention(kind, build("xpos"), num_heads=HEADS, head_dim=DIM, causal=False)


def test_an_encoded_denominator_of_xpos_is_plain():
    qkv, at = draw(3, 1, HEADS, 9, DIM), torch.arange(9).unsqueeze(0) * 100
    default, plain, none = (
        attend(build("xpos"), "linear", qkv, at, normalizer=word)
        for word in ("encoded", "plain", "none")
    )
    assert torch.equal(default, plain)
    assert not torch.allclose(default, none)


# All.


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_eight_times_the_longest_position(name, kind):
    """A model meets them as one built for them does."""
    qkv, at = draw(3, 1, HEADS, 9, DIM), torch.linspace(0, 8 * MAX, 9).long().unsqueeze(0)
    short, long = (attend(build(name, max_positions=n), kind, qkv, at) for n in (MAX, 8 * MAX + 1))
    torch.testing.assert_close(short, long, atol=5e-6, rtol=0)
    assert short.isfinite().all()


@pytest.mark.parametrize(
    ("name", "dim", "options", "message"),
    [
        ("rope_interpolated", 8, {"factor": 0.5}, "`factor` must be .*at least 1, but is 0.5"),
        ("rope_ntk", 8, {"factor": math.inf}, "`factor` must be finite .*but is inf"),
        ("rope_ntk", 8, {"factor": math.nan}, "`factor` must be finite .*but is nan"),
        ("rope_ntk", 2, {}, "`scaling=ntk` must have at least 4 .*but has 2 .*`head_dim`=2"),
        ("rope_ntk", 7, {}, "`head_dim` must be even .*but is 7"),
        ("rope_values", 7, {}, "`head_dim` must be even .*but is 7"),
        ("rope_values", 8, {"output": "back"}, "`output` must be one of turned_back, as_is"),
        ("xpos", 7, {}, "`head_dim` must be even, but is 7"),
        ("xpos", 8, {"scale_base": 0}, "`scale_base` must be above 0 .*but is 0"),
        ("xpos", 8, {"scale_base": math.nan}, "`scale_base` must be above 0 .*but is nan"),
        ("xpos", 8, {"gamma": -0.1}, "`gamma` must be above 0 .*but is -0.1"),
        ("xpos", 8, {"gamma": math.inf}, "`gamma` must be .*at most 1e.12, but is inf"),
        ("xpos", 8, {"base": 1.0}, "`base` must be above 1 .*but is 1.0"),
        ("xpos", 8, {"scale_base": 0.5}, "`max_positions` must be at most .*scale_base=0.5"),
    ],
)
def test_what_has_no_meaning_is_refused(name, dim, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, dim, **options)


@pytest.mark.parametrize("gamma", [1e-30, 1e12])
def test_extreme_decays_are_numbers(gamma):
    encoding = build("xpos", gamma=gamma, scale_base=1e6)
    x = draw(1, HEADS, 3, DIM)
    assert encoding.transform_query(x, torch.tensor([[0, 1, 63]])).isfinite().all()
