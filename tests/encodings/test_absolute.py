"""Absolute encodings against fairseq's own embedding and the papers' closed form."""

import math

import pytest
import torch

from fairseq_plugins.encodings import build_encoding


def build(name: str, embed_dim: int, **options):
    return build_encoding(name, num_heads=1, head_dim=embed_dim, embed_dim=embed_dim, **options)


@pytest.mark.parametrize("embed_dim", [4, 16, 17, 512])
def test_base_is_fairseqs_sinusoidal_embedding(embed_dim):
    fairseq = pytest.importorskip("fairseq.modules", reason="needs fairseq to compare with")
    pad = 1
    theirs = fairseq.SinusoidalPositionalEmbedding(embed_dim, padding_idx=pad, init_size=1200)
    tokens = torch.full((1, 1000), pad + 1)
    x = torch.randn(1, 1000, embed_dim)
    ours = build("base", embed_dim, max_positions=512).embed(x, torch.arange(1000).unsqueeze(0))
    # Theirs is made in float32: at position 1000 its angles are off by 6e-5.
    torch.testing.assert_close(ours, x + theirs(tokens), atol=2e-4, rtol=0)


def test_base_counts_padding_as_fairseq_does():
    fairseq = pytest.importorskip("fairseq.modules", reason="needs fairseq to compare with")
    from fairseq_plugins.attention import make_positions

    theirs = fairseq.SinusoidalPositionalEmbedding(8, padding_idx=1, init_size=32)
    for row in ([[5, 6, 7, 1, 1]], [[1, 1, 5, 6, 7]]):
        tokens = torch.tensor(row)
        padding = tokens.eq(1)
        ours = build("base", 8).embed(torch.zeros(1, 5, 8), make_positions(padding, 5))
        torch.testing.assert_close(ours[~padding], theirs(tokens)[~padding], atol=1e-6, rtol=0)


@pytest.mark.parametrize("embed_dim", [2, 6, 64])
def test_sinusoidal_closed_form(embed_dim):
    at = [0, 1, 7, 300, 10000]
    rows = build("sinusoidal", embed_dim).rows(torch.tensor([at]))[0]
    for row, s in zip(rows, at, strict=True):
        for i in range(embed_dim // 2):
            angle = s / 10000 ** (2 * i / embed_dim)
            assert row[2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert row[2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("embed_dim", [2, 6, 64])
def test_learnable_sinusoidal_starts_as_the_fixed_one(embed_dim):
    fixed, learnable = (build(n, embed_dim) for n in ("sinusoidal", "learnable_sinusoidal"))
    assert [tuple(p.shape) for p in learnable.parameters()] == [(embed_dim // 2,)]
    assert not list(fixed.parameters())
    at = torch.tensor([[0, 1, 7, 300, 10000]])
    # A float32 frequency is off by half a unit in the last place, times the position.
    allowed = at.unsqueeze(-1) * 2.0**-24 + 1e-7
    assert ((learnable.rows(at) - fixed.rows(at)).abs() <= allowed).all()


def test_learnable_sinusoidal_closed_form_of_any_frequencies():
    encoding = build("learnable_sinusoidal", 6)
    with torch.no_grad():
        encoding.frequencies.copy_(torch.tensor([2.3, 0.7, -0.1]))
    at = [0, 1, 7, 300, 10000]
    rows = encoding.rows(torch.tensor([at]))[0].tolist()
    for row, s in zip(rows, at, strict=True):
        for i, w in enumerate(encoding.frequencies.tolist()):
            assert row[2 * i] == pytest.approx(math.sin(w * s), abs=1e-6)
            assert row[2 * i + 1] == pytest.approx(math.cos(w * s), abs=1e-6)


def test_gradient_of_the_frequencies():
    """By differences, and at a far position in closed form: d sin(w s) / dw = s cos(w s)."""
    encoding = build("learnable_sinusoidal", 6).double()
    near, far = torch.tensor([[0, 2, 5]]), torch.tensor([[10000]])
    assert torch.autograd.gradcheck(lambda _: encoding.rows(near), (encoding.frequencies,))
    weights = torch.randn(6, dtype=torch.float64)
    (encoding.rows(far)[0, 0] * weights).sum().backward()
    angles = 10000 * encoding.frequencies.detach()
    expected = 10000 * (weights[::2] * angles.cos() - weights[1::2] * angles.sin())
    torch.testing.assert_close(encoding.frequencies.grad, expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("name", ["base", "sinusoidal", "learnable_sinusoidal", "learned"])
def test_rows_are_added_to_the_tokens(name):
    encoding = build(name, 8)
    x, at = torch.randn(3, 4, 8), torch.tensor([[0, 1, 2, 3], [0, 0, 1, 2], [9, 10, 11, 12]])
    torch.testing.assert_close(encoding.embed(x, at), x + encoding.rows(at))
    shared = encoding.embed(x, at[:1])
    torch.testing.assert_close(shared, x + encoding.rows(at[:1]))
    assert encoding.embed(x.bfloat16(), at).dtype == torch.bfloat16


def test_learned_refuses_a_position_beyond_its_table():
    encoding = build("learned", 8, max_positions=16)
    assert encoding.rows(torch.tensor([[15]])).shape == (1, 1, 8)
    with pytest.raises(ValueError, match=r"`positions` must be below max_positions=16.*reach 16"):
        encoding.embed(torch.zeros(1, 1, 8), torch.tensor([[16]]))


def test_learned_draws_as_fairseq_and_from_its_generator():
    first, second = (
        build("learned", 64, generator=torch.Generator().manual_seed(5)).weight for _ in range(2)
    )
    assert torch.equal(first, second)
    assert first.std().item() == pytest.approx(64**-0.5, rel=0.02)


def test_widths_without_meaning_are_refused():
    for name in ("sinusoidal", "learnable_sinusoidal"):
        with pytest.raises(ValueError, match="`embed_dim` must be even, but is 7"):
            build(name, 7)
    with pytest.raises(ValueError, match="`embed_dim` must be at least 4, but is 3"):
        build("base", 3)


def test_none_leaves_everything_alone():
    encoding = build("none", 8)
    assert encoding.hooks == frozenset()
    x = torch.randn(1, 2, 8)
    assert encoding.embed(x, torch.tensor([[0, 1]])) is x
