"""The denominators of the LRPE authors' code: a clamped one, and a norm in its place."""

import warnings

import pytest
import torch
from attention_cases import DIM, HEADS, WIDTH, Layer, count, error, redraw, tokens
from torch import Tensor
from torch.nn import functional as F

from fairseq_plugins.attention import (
    FEATURE_MAPS,
    PositionalMultiheadAttention,
    base,
    build_attention,
    floored_share,
)
from fairseq_plugins.attention.normalizers import EPSILON
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels import naive_linear_attention

NAMES = ("none", "rope", "lrpe_type2", "lrpe_type8", "spe", "xpos")
AUTHORS = ("clamped", "layer_norm", "rms_norm")
BOTH_WAYS = [
    (name, causal) for name in NAMES for causal in (True, False) if causal or name != "xpos"
]


def options_of(word: str) -> dict[str, object]:
    if word == "clamped":
        return {"normalizer": "clamped"}
    return {"normalizer": "output_norm", "output_norm": word}


def build(name: str, *, causal: bool = True, **options):
    encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, causal=causal).double()
    return build_attention(
        "linear", encoding, num_heads=HEADS, head_dim=DIM, causal=causal, **options
    ).double()


def joined(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, H D)."""
    return x.transpose(1, 2).flatten(2)


def call(attention, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
    at = {"q_positions": count(q.size(2)), "k_positions": count(k.size(2))}
    return attention(q, k, v, **at, key_padding_mask=padding)[0]


@pytest.mark.parametrize(("name", "causal"), BOTH_WAYS)
def test_clamped_divides_by_the_sum_or_epsilon(name, causal):
    """max(sum, epsilon) of the encoded features; the sum where none can be negative."""
    epsilon = None if causal else 2.0
    attention = build(name, causal=causal, normalizer="clamped", epsilon=epsilon)
    q, k, v = torch.randn(3, 2, HEADS, 70, DIM, dtype=torch.float64)
    padding = torch.arange(70) >= torch.tensor([[70], [60]])
    at, encoding, phi = count(70), attention.encoding, FEATURE_MAPS["elu"]
    torch.manual_seed(3)
    output = call(attention, q, k, v, padding)
    torch.manual_seed(3)
    redraw(encoding, int(base.draw_seed()))
    before = name == "spe"  # that one acts before the feature map
    features = [x if before else phi(x) for x in (q, k)]
    encoded = [encoding.transform_query(features[0], at), encoding.transform_key(features[1], at)]
    encoded_q, encoded_k = (phi(x) if before else x for x in encoded)
    may_be_negative = name not in ("none", "spe")
    expected = naive_linear_attention(
        encoded_q,
        encoded_k.masked_fill(padding[:, None, :, None], 0.0),
        v,
        epsilon=(EPSILON if epsilon is None else epsilon) if may_be_negative else None,
        causal=causal,
    )
    assert error(output, expected) <= 1e-9


@pytest.mark.parametrize("word", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize(("name", "causal"), [("rope", True), ("lrpe_type2", False)])
def test_the_output_norm_is_over_all_heads_of_what_nothing_divides(name, causal, word):
    attention = build(name, causal=causal, **options_of(word))
    q, k, v = torch.randn(3, 2, HEADS, 30, DIM, dtype=torch.float64)
    norm = attention.output_norm
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    undivided = build(name, causal=causal, normalizer="none")
    undivided.encoding.load_state_dict(attention.encoding.state_dict())
    sums = joined(call(undivided, q, k, v))
    if word == "rms_norm":
        assert norm.bias is None
        expected = F.rms_norm(sums, (WIDTH,), norm.weight, 1e-5)
    else:
        expected = F.layer_norm(sums, (WIDTH,), norm.weight, norm.bias)
    assert error(joined(call(attention, q, k, v)), expected) <= 1e-9


@pytest.mark.parametrize("word", ["layer_norm", "rms_norm"])
def test_an_output_norm_takes_away_what_all_heads_are_multiplied_by(word):
    """As a denominator that they share would be; here that of all values, or of all keys."""
    attention = build("rope", feature_map="relu", **options_of(word))
    q, k, v = torch.randn(3, 2, HEADS, 30, DIM, dtype=torch.float64) + 0.5
    expected = call(attention, q, k, v)
    assert error(call(attention, q, k, 300 * v), expected) <= 1e-5
    assert error(call(attention, q, 300 * k, v), expected) <= 1e-5
    one_head = v * torch.tensor([1.0, 300.0], dtype=v.dtype).view(1, HEADS, 1, 1)
    assert error(call(attention, q, k, one_head), expected) > 0.1


@pytest.mark.parametrize("word", AUTHORS)
@pytest.mark.parametrize("name", NAMES)
def test_steps_are_the_whole(name, word):
    torch.manual_seed(5)
    layer = Layer(name, "linear", causal=True, **options_of(word))
    x = tokens(2, 9)
    outputs, state, start = [], None, 0
    torch.manual_seed(6)
    embedded = layer.embed(x, count(9))
    for size in (1, 4, 3, 1):
        step, state = layer.step(embedded[:, start : start + size], count(size, start), state)
        outputs.append(step)
        start += size
    torch.manual_seed(6)
    layer.embed(x, count(9))
    assert error(torch.cat(outputs, 1), layer(x, count(9))) <= 1e-9


@pytest.mark.parametrize("word", AUTHORS)
@pytest.mark.parametrize("name", ["rope", "lrpe_type8"])
def test_remembered_keys_are_keys(name, word):
    layer = Layer(name, "linear", causal=False, **options_of(word))
    x, memory = tokens(2, 5), tokens(2, 7)
    padding = torch.arange(7) >= torch.tensor([[7], [4]])
    whole = layer(x, count(5), memory=memory, memory_at=count(7), padding=padding)
    state = layer.remember(memory, count(7), padding)
    assert error(layer.attend(x, count(5), state), whole) <= 1e-9
    alone = layer(x[1:], count(5), memory=memory[1:, :4], memory_at=count(4))
    assert error(whole[1:], alone) <= 1e-9


@pytest.mark.parametrize("word", AUTHORS)
@pytest.mark.parametrize("causal", [True, False])
def test_no_token_one_token_and_padding_alone(word, causal):
    layer = Layer("rope", "linear", causal=causal, **options_of(word))
    assert layer(tokens(2, 0), count(0)).shape == (2, 0, WIDTH)
    assert layer(tokens(2, 1), count(1)).isfinite().all()
    x = tokens(2, 4).requires_grad_()
    output = layer(x, count(4), padding=torch.tensor([[False], [True]]).expand(2, 4))
    assert not output[1].any()
    output.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
def test_sums_beyond_the_range_of_half_precision_are_normed(dtype, causal):
    """512 keys of 64 features near 1 and values of 10 add up to 3e5; float16 ends at 65,504."""
    shape, heads = (1, 2, 512, 64), {"num_heads": 2, "head_dim": 64, "causal": causal}
    q, k = torch.full(shape, 0.1), torch.full(shape, 0.1)
    v = torch.linspace(9, 11, 64).expand(shape)
    attention = build_attention("linear", None, **heads, normalizer="output_norm").to(dtype)
    output = call(attention, *(x.to(dtype) for x in (q, k, v)))
    assert output.dtype == dtype
    assert error(output, call(attention.double(), q.double(), k.double(), v.double())) <= 0.02


def test_shapes_are_known_without_numbers():
    """As on the meta device, for which there is no autocast."""
    layer = PositionalMultiheadAttention(
        32, 4, position_encoding="rope", attention="linear", causal=True
    ).to("meta")
    x = torch.randn(2, 7, 32, device="meta")
    assert layer(x, x, x)[0].shape == x.shape


@pytest.mark.parametrize(
    ("name", "normalizer", "options", "most"),
    [
        ("lrpe_type8", "clamped", {"epsilon": 1e-4}, 4096),
        ("rope", "clamped", {"epsilon": 1e-3}, 4096),
        ("none", "none", {}, 65504),
        ("rope_values", "none", {}, 65504),
    ],
)
@pytest.mark.parametrize("causal", [True, False])
def test_what_has_no_bound_ends_within_float16(name, normalizer, options, most, causal):
    torch.manual_seed(4)
    shape = {"num_heads": 4, "head_dim": 64 if normalizer == "none" else 8}
    encoding = build_encoding(name, **shape, causal=causal)
    attention = build_attention(
        "linear", encoding, **shape, causal=causal, normalizer=normalizer, **options
    ).half()
    q, k, v = (torch.randn(1, 4, 512, shape["head_dim"]) for _ in range(3))
    output = call(attention, q.half(), k.half(), (4 * v + 9).half())
    assert output.dtype == torch.float16 and output.isfinite().all()
    # A rotation of the output leaves no feature at the bound itself.
    assert most / 2 <= output.abs().max() <= most
    assert name == "rope_values" or output.abs().max() == most


def test_grouped_heads_have_one_norm_over_the_layer():
    layer = PositionalMultiheadAttention(
        32,
        4,
        position_encoding="rope",
        attention="linear",
        causal=True,
        num_kv_heads=2,
        attention_options={"normalizer": "output_norm"},
    )
    names = [name for name in layer.state_dict() if "output_norm" in name]
    assert names == ["attention.output_norm.weight", "attention.output_norm.bias"]
    assert layer.attention.output_norm.weight.shape == (32,)
    x = torch.randn(2, 7, 32)
    output, _ = layer(x, x, x)
    whole, state = layer.step(x[:, :3])
    rest, _ = layer.step(x[:, 3:], state)
    assert error(torch.cat((whole, rest), 1), output) <= 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalizer": "clamped", "min_cosine": 0.2}, "`min_cosine` must be left out .*clamped"),
        ({"normalizer": "output_norm", "min_cosine": 0.0}, "`min_cosine` must be left out"),
        ({"normalizer": "none", "min_cosine": 0.1}, "`min_cosine` must be left out .*none.* 0.1"),
        (
            {"normalizer": "encoded", "epsilon": 1e-6},
            "`epsilon` must be left out with normalizer=encoded.* 1e-06",
        ),
        ({"normalizer": "clamped", "epsilon": 0.0}, "`epsilon` must be positive.* 0.0"),
        ({"normalizer": "clamped", "epsilon": float("nan")}, "`epsilon` must be positive.* nan"),
        ({"normalizer": "plain", "output_norm": "rms_norm"}, "`output_norm` must be left out"),
        ({"normalizer": "output_norm", "output_norm": "batch"}, "`output_norm` must be one of"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build("rope", **options)


def test_plain_denominators_that_vanish_under_weights_that_do_not_are_refused():
    """SPE acts before the feature map: relu(q) can be 0 where that of the encoded q is not."""
    with pytest.raises(ValueError, match="`normalizer` must not be plain with feature_map=relu"):
        build("spe", normalizer="plain", feature_map="relu")


def test_long_sequences_with_clamped_denominators_are_warned_of():
    """Only where encoded features cancel, as the outputs of random tokens show."""
    q, k, v = torch.randn(3, 1, HEADS, 1024, DIM, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"beyond 256 tokens .*encoded does not have this"):
        assert call(build("rope", normalizer="clamped"), q, k, v).abs().max() > 1e4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, normalizer in (("rope", "encoded"), ("none", "clamped")):
            assert call(build(name, normalizer=normalizer), q, k, v).abs().max() < 10
        call(build("rope", normalizer="clamped"), *(x[:, :, :256] for x in (q, k, v)))


def test_shares_of_clamped_denominators():
    """Positive sums are never below epsilon; those of complex features often are."""
    assert floored_share(build("none", normalizer="clamped"), length=32) == 0
    assert 0.05 < floored_share(build("lrpe_type8", normalizer="clamped"), length=64) < 0.95
    assert floored_share(build("lrpe_type8", normalizer="output_norm"), length=32) == 0
