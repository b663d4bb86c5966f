"""Which share of queries the floor under linear attention's denominators decides for."""

import pytest
import torch
from attention_cases import BIDIRECTIONAL, CAUSAL, VOCAB, count, redraw

from fairseq_plugins.attention import LinearAttention, build_attention, floored_share
from fairseq_plugins.encodings import LinearFacts, build_encoding

HEADS, DIM = 4, 64


def build(
    name: str, *, causal: bool = True, normalizer: str = "encoded", **options
) -> LinearAttention:
    encoding = build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        causal=causal,
        vocab_size=VOCAB,
        max_positions=512,
        generator=torch.Generator().manual_seed(2),
    )
    attention = build_attention(
        "linear",
        encoding,
        num_heads=HEADS,
        head_dim=DIM,
        causal=causal,
        normalizer=normalizer,
        **options,
    )
    assert isinstance(attention, LinearAttention)
    return attention


@pytest.mark.parametrize("causal", [True, False])
def test_type_8_lives_on_its_floor_and_others_hardly_meet_it(causal):
    """The constant feature of a Fourier transform turns by a radian per position."""
    assert floored_share(build("lrpe_type8", causal=causal)) > 0.95
    for name in ("rope", "lrpe_type1", "lrpe_type5", "lrpe_identity"):
        assert floored_share(build(name, causal=causal)) < 0.05, name
    assert floored_share(build("rope", causal=causal)) > 0


@pytest.mark.parametrize("name", ["rope", "lrpe_type2", "lrpe_type8"])
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_the_share_of_outputs_that_the_floor_changes(name, causal):
    """With a value of one for all keys an output is the denominator over itself, or less."""
    attention, ones = build(name, causal=causal), torch.ones(1, HEADS, 64, DIM).double()
    generator = torch.Generator().manual_seed(7)
    q, k = torch.randn(2, 1, HEADS, 64, DIM, generator=generator, dtype=torch.float64)
    output, _ = attention(q, k, ones, q_positions=count(64), k_positions=count(64))
    changed = float((output[..., 0].abs() < 1 - 1e-9).double().mean())
    assert floored_share(attention, length=64, seed=7) == pytest.approx(changed)


@pytest.mark.parametrize(
    ("name", "causal"),
    [(n, True) for n, a in CAUSAL if a == "linear"]
    + [(n, False) for n, a in BIDIRECTIONAL if a == "linear"],
)
def test_it_is_a_share_and_none_without_a_floor(name, causal):
    attention = build(name, causal=causal)
    redraw(attention.encoding, 3)
    share = floored_share(attention, length=48)
    assert 0 <= share <= 1
    facts = LinearFacts.of(attention.encoding)
    if facts.keeps_positive or not facts.keeps_norms:
        assert share == 0
    assert floored_share(build(name, causal=causal, min_cosine=0.0), length=48) == 0


def test_it_rises_with_the_floor():
    shares = [floored_share(build("rope", min_cosine=c), length=128) for c in (0.1, 0.3, 0.6, 1.0)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
