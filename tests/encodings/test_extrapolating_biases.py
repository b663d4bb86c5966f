"""KERPLE, Sandwich and FIRE: the papers' formulas in loops, and what each promises of a bias."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.encodings import PositionEncoding, build_encoding, build_model_encodings
from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.fire import Fire
from fairseq_plugins.encodings.kerple import Kerple

HEADS, DIM = 4, 8
KERNELS = ["kerple_log", "kerple_power"]


def build(name: str, *, heads: int = HEADS, causal: bool = True, seed: int = 3, **options):
    return build_encoding(
        name,
        num_heads=heads,
        head_dim=DIM,
        max_positions=64,
        causal=causal,
        generator=torch.Generator().manual_seed(seed),
        **options,
    )


def count(length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length).unsqueeze(0)


def bias_of(encoding: PositionEncoding, length: int, start: int = 0) -> Tensor:
    """(H, T, T) float64."""
    at = count(length, start)
    with torch.no_grad():
        return encoding.attn_bias(at, at)[0].double()


def lower(matrix: Tensor) -> Tensor:
    """What a causal query sees."""
    return matrix.tril()


def random_kernel(name: str) -> Kerple:
    encoding = build(name)
    assert isinstance(encoding, Kerple)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    return encoding


@pytest.mark.parametrize("name", KERNELS)
def test_kerple_is_its_formula(name):
    encoding = random_kernel(name)
    r1, r2 = (r.tolist() for r in encoding.parameters_of_kernel())
    bias = bias_of(encoding, 20)
    for h in range(HEADS):
        for s in range(20):
            for t in range(20):
                n = abs(s - t)
                expected = -r1[h] * (math.log(1 + r2[h] * n) if name == KERNELS[0] else n ** r2[h])
                assert bias[h, s, t].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_kerple_is_a_conditionally_positive_definite_kernel(name):
    """x^T K x >= 0 where x sums to 0, for any parameters: what the paper's Definition asks."""
    for seed in range(20):
        torch.manual_seed(seed)
        kernel = bias_of(random_kernel(name), 24)
        centre = torch.eye(24, dtype=torch.float64) - 1 / 24
        smallest = torch.linalg.eigvalsh(centre @ kernel @ centre).min()
        assert smallest > -1e-5 * kernel.abs().max()


@pytest.mark.parametrize("name", KERNELS)
def test_kerple_falls_with_the_distance(name):
    row = bias_of(random_kernel(name), 300)[:, -1].flip(-1)
    assert not row[:, 0].any()
    assert (row.diff(dim=-1) < 0).all()


def test_power_one_is_alibi():
    encoding, alibi = build("kerple_power"), build("alibi")
    with torch.no_grad():
        encoding.log_r1.copy_(alibi.slopes.on(encoding.log_r1).log())
        encoding.logit_r2.zero_()  # r2 = 2 sigmoid(0)
    torch.testing.assert_close(bias_of(encoding, 50), bias_of(alibi, 50))


@pytest.mark.parametrize("name", KERNELS)
def test_kerple_begins_as_the_release(name):
    """r1 and r2 uniform in 0..2 and 0..1 for log, 0..1 and 0..2 for power."""
    r1, r2 = build(name, heads=4000).parameters_of_kernel()
    ends = (2.0, 1.0) if name == KERNELS[0] else (1.0, 2.0)
    for values, end in zip((r1, r2), ends, strict=True):
        assert 0.0 < values.min() < 0.05 * end
        assert 0.95 * end < values.max() < end
        assert values.mean().item() == pytest.approx(end / 2, abs=0.03 * end)


@pytest.mark.parametrize("name", KERNELS)
def test_every_step_of_training_keeps_a_kernel(name):
    """However large: the parameters stay in their ranges, and gradients are finite."""
    encoding = build(name)
    for sign in (1.0, -1.0):
        optimizer = torch.optim.Adam(encoding.parameters(), lr=1.0)
        for _ in range(5):
            optimizer.zero_grad()
            (sign * encoding.attn_bias(count(8), count(8)).mean()).backward()
            assert all(p.grad.isfinite().all() for p in encoding.parameters())
            optimizer.step()
        r1, r2 = encoding.parameters_of_kernel()
        assert (r1 > 0).all()
        assert (r2 > 0).all()
        assert name == KERNELS[0] or (r2 <= 2).all()


@pytest.mark.parametrize("features", [128, 6])
@pytest.mark.parametrize("heads", [8, 6])
def test_sandwich_is_products_of_sinusoidal_vectors(heads, features):
    bias = bias_of(build("sandwich", heads=heads, num_features=features), 30)
    vectors = []
    for s in range(30):
        angles = [s / 10000 ** (2 * j / features) for j in range(features // 2)]
        vectors.append([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
    products = torch.tensor(vectors, dtype=torch.float64)
    products = products @ products.mT
    for h in range(heads):
        expected = products / (8 * (h + 1) / heads)
        torch.testing.assert_close(bias[h], expected, rtol=1e-5, atol=1e-5)


def test_sandwich_is_largest_at_the_query_and_falls_like_a_logarithm():
    at = count(4000)
    with torch.no_grad():
        row = build("sandwich", heads=8).attn_bias(at[:, -1:], at)[0, 0, 0].double().flip(-1)
    assert (row[1:] < row[0]).all()
    # Waves remain, so that it is the mean of each octave that falls, by about the same.
    octaves = torch.stack([row[2**i : 2 ** (i + 1)].mean() for i in range(11)])
    drops = -octaves.diff()
    assert (drops > 0).all()
    assert drops.max() < 2 * drops.median()


@pytest.mark.parametrize("features", [0, 7, -2])
def test_sandwich_needs_an_even_number_of_features(features):
    with pytest.raises(ValueError, match=f"`num_features` must be .*, but is {features} instead"):
        build("sandwich", num_features=features)


@pytest.mark.parametrize("start", [0, 5, 200])
def test_fire_is_its_formula(start):
    """The release's few lines, in loops: f(log(c (s - t) + 1) / log(c max(s, L) + 1))."""
    encoding = build("fire", threshold=20.0)
    c, threshold = encoding.log_rate.exp().item(), encoding.log_threshold.exp().item()
    w1, b1 = encoding.first_weight.tolist(), encoding.first_bias.tolist()
    w2, b2 = encoding.second_weight.tolist(), encoding.second_bias.tolist()
    bias = bias_of(encoding, 30, start)
    for s in range(30):
        for t in range(s + 1):
            longest = max(s + start, threshold)
            x = math.log(c * (s - t) + 1) / math.log(c * longest + 1)
            inner = [max(0.0, w * x + b) for w, b in zip(w1, b1, strict=True)]
            for h in range(HEADS):
                expected = sum(w * y for w, y in zip(w2[h], inner, strict=True)) + b2[h]
                assert bias[h, s, t].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_fire_is_relative_below_its_threshold_only():
    encoding = build("fire", threshold=100.0)
    torch.testing.assert_close(bias_of(encoding, 40, 60), bias_of(encoding, 40))
    late = bias_of(encoding, 40, 500)
    assert (lower(late) - lower(bias_of(encoding, 40))).abs().max() > 1e-3


@pytest.mark.parametrize("causal", [True, False])
def test_fire_never_leaves_the_inputs_that_it_was_trained_on(causal):
    """Progressive interpolation: the network's input is in 0..1 at any length."""
    encoding, seen = build("fire", causal=causal), []
    encoding.network = lambda x: seen.append(x) or x.unsqueeze(-1).expand(*x.shape, HEADS)
    at = count(5000)
    queries = at[:, 499::500]  # the whole matrix takes seconds
    encoding.attn_bias(queries, at)
    x = seen[0][0][at <= queries.mT] if causal else seen[0][0]
    assert x.min() == 0.0
    assert x.max() <= 1.0


def test_fire_begins_at_a_quarter_of_the_longest_sequence():
    """As the paper's 512 at 2,048 tokens."""
    assert build("fire").log_threshold.exp().item() == pytest.approx(16)
    assert build("fire", threshold=512).log_threshold.exp().item() == pytest.approx(512)


@pytest.mark.parametrize("option", ["rate", "threshold"])
@pytest.mark.parametrize("value", [-1.0, 1e-50, 1e39, float("nan"), float("inf")])
def test_what_float32_cannot_hold_is_refused(option, value):
    with pytest.raises(ValueError, match=f"`{option}` must be from 1e-30 to 1e\\+30, but is"):
        build("fire", **{option: value})


@pytest.mark.parametrize("shared", [True, False])
def test_fire_has_one_network_per_layer_or_one_for_all(shared):
    context = EncodingContext(HEADS, DIM, HEADS * DIM, 64, causal=True)
    layers = build_model_encodings("fire", 3, context, {"shared": shared}).layers
    first, *later = layers
    assert isinstance(first, Fire)
    for layer in later:
        assert (layer.second_weight is first.second_weight) == shared
        assert (layer.log_rate is first.log_rate) == shared


@pytest.mark.parametrize(
    "options", [{"hidden": 0}, {"rate": 0.0}, {"rate": math.inf}, {"threshold": -1.0}]
)
def test_fire_refuses_what_has_no_meaning(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"`{name}` must be .*, but is {value} instead"):
        build("fire", **options)
