"""ALiBi's slopes, T5's buckets and the scalar per offset, against known numbers and slow
definitions."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.encodings.bias import alibi_slopes, t5_buckets


def slopes_by_recursion(num_heads: int) -> list[float]:
    """The published recipe: a geometric sequence for powers of two, interleaved otherwise."""
    if math.log2(num_heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(num_heads) - 3)))
        return [start ** (h + 1) for h in range(num_heads)]
    lower = 2 ** math.floor(math.log2(num_heads))
    return slopes_by_recursion(lower) + slopes_by_recursion(2 * lower)[::2][: num_heads - lower]


@pytest.mark.parametrize("num_heads", [*range(1, 33), 48, 64, 96])
def test_slopes_are_the_published_ones(num_heads):
    expected = torch.tensor(slopes_by_recursion(num_heads))
    torch.testing.assert_close(alibi_slopes(num_heads), expected)


def test_known_slopes():
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    # The example of Gu et al. 2025: 16 heads start at 2^-0.5.
    torch.testing.assert_close(alibi_slopes(16), 2.0 ** -torch.arange(0.5, 8.5, 0.5))
    expected = [2.0**-h for h in range(1, 9)] + [2.0**-h for h in (0.5, 1.5, 2.5, 3.5)]
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(expected))


def test_alibi_is_minus_slope_times_distance_both_ways():
    encoding = build_encoding("alibi", num_heads=8, head_dim=4)
    at = torch.tensor([[0, 1, 5, 10000]])
    bias = encoding.attn_bias(at, at)
    assert bias.shape == (1, 8, 4, 4)
    for h, s, t in ((0, 0, 1), (3, 2, 0), (7, 3, 0), (0, 3, 3)):
        assert bias[0, h, s, t] == -(2.0 ** -(h + 1)) * abs(int(at[0, s] - at[0, t]))


def scalar_bucket(relative: int, num_buckets: int, max_distance: int, causal: bool) -> int:
    """The definition in whole numbers: the logarithm's floor without a logarithm.

    Bucket exact + floor((n - exact) log(d / exact) / log(max / exact)) is exact + k for the
    largest k with (d / exact)^(n - exact) >= (max / exact)^k.
    """
    bucket = 0
    if causal:
        distance = max(-relative, 0)
    else:
        num_buckets //= 2
        bucket = num_buckets if relative > 0 else 0
        distance = abs(relative)
    exact = num_buckets // 2
    if distance < exact:
        return bucket + distance
    wide = num_buckets - exact
    k = 0
    while (
        exact + k + 1 < num_buckets
        and distance**wide * exact ** (k + 1) >= max_distance ** (k + 1) * exact**wide
    ):
        k += 1
    return bucket + exact + k


def check_buckets(relative: list[int], **options) -> None:
    actual = t5_buckets(torch.tensor(relative), **options).tolist()
    assert actual == [scalar_bucket(r, **options) for r in relative]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 64), (32, 512), (8, 20)])
def test_buckets_are_the_published_ones(causal, num_buckets, max_distance):
    offsets = list(range(-600, 601))
    check_buckets(offsets, num_buckets=num_buckets, max_distance=max_distance, causal=causal)


@settings(max_examples=150)
@given(
    relative=st.integers(-(10**5), 10**5),
    half=st.integers(2, 32),
    beyond=st.integers(1, 500),
    causal=st.booleans(),
)
def test_buckets_for_any_sizes(relative, half, beyond, causal):
    exact = (2 * half if causal else half) // 2
    wide = (2 * half if causal else half) - exact
    steps = wide * math.log(max(abs(relative), 1) / exact) / math.log((half + beyond) / exact)
    # T5's logarithm is float32; on a border between buckets it may fall to either side.
    assume(abs(steps - round(steps)) > 1e-5 or steps == round(steps))
    check_buckets([relative], num_buckets=2 * half, max_distance=half + beyond, causal=causal)


def test_known_buckets():
    options = {"num_buckets": 32, "max_distance": 128}
    behind = torch.tensor([0, 1, 15, 16, 18, 19, 127, 128, 5000, -3])
    causal = t5_buckets(-behind, causal=True, **options)
    assert causal.tolist() == [0, 1, 15, 16, 16, 17, 31, 31, 31, 0]
    offsets = torch.tensor([0, -1, 1, -8, 8, -11, -12, 127, -5000])
    both = t5_buckets(offsets, causal=False, **options)
    assert both.tolist() == [0, 1, 17, 8, 24, 8, 9, 31, 15]


@pytest.mark.parametrize("causal", [True, False])
def test_t5_reads_its_table_by_bucket_and_head(causal):
    encoding = build_encoding("t5", num_heads=3, head_dim=4, causal=causal)
    assert [tuple(p.shape) for p in encoding.parameters()] == [(32, 3)]
    q_at, k_at = torch.tensor([[4, 5, 90]]), torch.tensor([[0, 4, 7, 200]])
    bias = encoding.attn_bias(q_at, k_at)
    assert bias.shape == (1, 3, 3, 4)
    for s in range(3):
        for t in range(4):
            bucket = scalar_bucket(int(k_at[0, t] - q_at[0, s]), 32, 128, causal)
            assert torch.equal(bias[0, :, s, t], encoding.weight[bucket])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_buckets": 2}, "`num_buckets` must be .*but is 2"),
        ({"num_buckets": 9}, "`num_buckets` must be even .*but is 9"),
        ({"max_distance": 16}, "`max_distance` must be above .*16, but is 16"),
    ],
)
def test_t5_refuses_sizes_without_meaning(options, message):
    with pytest.raises(ValueError, match=message):
        build_encoding("t5", num_heads=2, head_dim=4, **options)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_heads", [1, 3, 8])
def test_scalar_is_a_number_per_clipped_offset_and_head(causal, num_heads):
    encoding = build_encoding(
        "scalar", num_heads=num_heads, head_dim=4, causal=causal, max_distance=3
    )
    assert [tuple(p.shape) for p in encoding.parameters()] == [(7, num_heads)]
    q_at, k_at = torch.tensor([[4, 5, 10000], [0, 0, 1]]), torch.tensor([[0, 2, 5, 9998]])
    bias = encoding.attn_bias(q_at, k_at)
    assert bias.shape == (2, num_heads, 3, 4)
    for b in range(2):
        for i, s in enumerate(q_at[b].tolist()):
            for j, t in enumerate(k_at[0].tolist()):
                row = encoding.weight[max(-3, min(3, t - s)) + 3]
                assert torch.equal(bias[b, :, i, j], row)


def test_scalar_within_the_exact_buckets_is_t5():
    """Offsets of less than the exact buckets have a row of their own in either table."""
    scalar = build_encoding("scalar", num_heads=2, head_dim=4, max_distance=7)
    t5 = build_encoding("t5", num_heads=2, head_dim=4)
    with torch.no_grad():
        t5.weight[:8] = scalar.weight[:8].flip(0)
        t5.weight[17:24] = scalar.weight[8:]
    at = torch.arange(8).unsqueeze(0)
    assert torch.equal(scalar.attn_bias(at, at), t5.attn_bias(at, at))


def test_scalar_has_shaws_clip_by_default():
    assert build_encoding("scalar", num_heads=2, head_dim=4).max_distance == 64
    with pytest.raises(ValueError, match="`max_distance` must be at least 1, but is 0"):
        build_encoding("scalar", num_heads=2, head_dim=4, max_distance=0)
