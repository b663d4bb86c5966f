"""Relative vectors against the (T, S, D) tensors of the papers, and the sinusoidal tables."""

import math

import pytest
import torch

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import EncodingContext, build_encoding, build_model_encodings

HEADS, DIM, CLIP = 2, 4, 3
CPU = torch.empty(())
NAMES = ["shaw", "shaw_keys", "sinusoidal_rpe", "learnable_sinusoidal_rpe"]
SINUSOIDAL = NAMES[2:]
WITH_VALUES = [(n, v) for n in NAMES for v in (True, False) if v is not (n == "shaw_keys")]
every_name = pytest.mark.parametrize("name", NAMES)


def build(name="shaw", head_dim=DIM, **options):
    encoding = build_encoding(
        name, num_heads=HEADS, head_dim=head_dim, **{"max_distance": CLIP, **options}
    )
    return encoding.double()


def gathered(table: torch.Tensor, q_at: torch.Tensor, k_at: torch.Tensor) -> torch.Tensor:
    """a_{st}: (T, S, D), row by row, from the definition."""
    rows = [
        [table[max(-CLIP, min(CLIP, t - s)) + CLIP] for t in k_at[0].tolist()]
        for s in q_at[0].tolist()
    ]
    return torch.stack([torch.stack(row) for row in rows])


@pytest.fixture
def tensors():
    q, k, v = (torch.randn(2, HEADS, n, DIM, dtype=torch.float64) for n in (5, 7, 7))
    return q, k, v, torch.arange(5).unsqueeze(0) + 1, torch.arange(7).unsqueeze(0)


@every_name
def test_terms_are_those_of_the_full_tensors(tensors, name):
    q, k, _, q_at, k_at = tensors
    encoding = build(name)
    keys = gathered(encoding.key_vectors(CPU).double(), q_at, k_at)
    logits = encoding.relative_logits(q, k, q_at, k_at)
    torch.testing.assert_close(logits, torch.einsum("bhtd,tsd->bhts", q, keys))
    if name == "shaw_keys":
        return
    weights = torch.randn(2, HEADS, 5, 7, dtype=torch.float64)
    values = gathered(encoding.value_vectors(CPU).double(), q_at, k_at)
    expected = torch.einsum("bhts,tsd->bhtd", weights, values)
    torch.testing.assert_close(encoding.relative_values(weights, q_at, k_at), expected)


@pytest.mark.parametrize(("name", "values"), WITH_VALUES)
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_is_the_papers_equations(tensors, name, values, need_weights):
    """z_s = sum_t softmax(q_s (k_t + a^K_st) / sqrt(d)) (v_t + a^V_st), Shaw's Eq. 3 and 4."""
    q, k, v, q_at, k_at = tensors
    encoding = build(name) if name == "shaw_keys" else build(name, values=values)
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    keys = k.unsqueeze(2) + gathered(encoding.key_vectors(CPU).double(), q_at, k_at)
    logits = torch.einsum("bhtd,bhtsd->bhts", q, keys) / DIM**0.5
    weights = logits.softmax(-1)
    added = gathered(encoding.value_vectors(CPU).double(), q_at, k_at) if values else 0.0
    expected = torch.einsum("bhts,bhtsd->bhtd", weights, v.unsqueeze(2) + added)
    output, returned = attention(
        q, k, v, q_positions=q_at, k_positions=k_at, need_weights=need_weights
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(returned, weights)


@pytest.mark.parametrize("name", ["shaw", *SINUSOIDAL])
def test_the_key_only_form_has_no_values(name):
    assert build(name, values=False).hooks == {"relative_logits"}
    assert build(name).hooks == {"relative_logits", "relative_values"}


def test_parameters():
    shapes = {n: [tuple(p.shape) for p in build(n).parameters()] for n in NAMES}
    assert shapes == {
        "shaw": [(2 * CLIP + 1, DIM)] * 2,
        "shaw_keys": [(2 * CLIP + 1, DIM)],
        "sinusoidal_rpe": [],
        "learnable_sinusoidal_rpe": [(DIM // 2,)],
    }
    assert len(list(build("shaw", values=False).parameters())) == 1


def test_shaw_keys_is_shaw_without_values(tensors):
    q, k, _, q_at, k_at = tensors
    keys, shaw = build("shaw_keys"), build("shaw", values=False)
    assert keys.hooks == shaw.hooks
    shaw.load_state_dict(keys.state_dict())
    terms = [e.relative_logits(q, k, q_at, k_at) for e in (keys, shaw)]
    assert torch.equal(*terms)


@every_name
def test_offsets_beyond_the_clip_share_a_vector(name):
    encoding, q = build(name), torch.randn(1, HEADS, 1, DIM, dtype=torch.float64)
    k, at = torch.randn(1, HEADS, 5, DIM, dtype=torch.float64), torch.tensor([[50]])
    far = encoding.relative_logits(q, k, at, torch.tensor([[0, 46, 47, 48, 10000]]))
    assert far[..., 0].equal(far[..., 1])
    assert far[..., 0].equal(far[..., 2])
    assert not far[..., 0].equal(far[..., 3])
    assert not far[..., 0].equal(far[..., 4])


@every_name
def test_heads_and_layers_share_the_vectors(name):
    context = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=HEADS * DIM)
    first, second = build_model_encodings(name, 2, context, {}).layers
    assert first is second
    q, at = torch.randn(1, 1, 5, DIM), torch.arange(5).unsqueeze(0)
    logits = first.relative_logits(q.expand(-1, HEADS, -1, -1), q, at, at)
    assert logits[:, 0].equal(logits[:, 1])


@every_name
def test_a_clip_below_one_is_refused(name):
    with pytest.raises(ValueError, match="`max_distance` must be at least 1, but is 0"):
        build(name, max_distance=0)
    assert build_encoding(name, num_heads=2, head_dim=4).max_distance == 64


@pytest.mark.parametrize("name", SINUSOIDAL)
@pytest.mark.parametrize("head_dim", [2, 6, 64])
def test_sinusoidal_tables_are_the_closed_form(name, head_dim):
    table = build(name, head_dim, max_distance=64).key_vectors(CPU)
    assert table.shape == (129, head_dim)
    for r in (-64, -3, 0, 1, 64):
        for i in range(head_dim // 2):
            angle = r / 10000 ** (2 * i / head_dim)
            # A learnable frequency is kept in float32, 2^-24 off at most, times the offset.
            sine, cosine = table[r + 64, 2 * i : 2 * i + 2].tolist()
            assert sine == pytest.approx(math.sin(angle), abs=4e-6)
            assert cosine == pytest.approx(math.cos(angle), abs=4e-6)


@pytest.mark.parametrize("name", SINUSOIDAL)
def test_products_of_sinusoidal_vectors_are_symmetric_in_the_offset(name):
    """<a_i, a_j> = sum cos(w (i - j)): one number per |i - j| (BERT paper, 3.1)."""
    encoding = build(name, 8, max_distance=20)
    if name == "learnable_sinusoidal_rpe":
        with torch.no_grad():
            encoding.frequencies.normal_()
    table = encoding.key_vectors(CPU)
    products = table @ table.mT
    for m in range(41):
        up, down = products.diagonal(m), products.diagonal(-m)
        first = up[:1]
        torch.testing.assert_close(up, first.expand_as(up), rtol=0, atol=1e-6)
        torch.testing.assert_close(down, first.expand_as(down), rtol=0, atol=1e-6)
    assert not encoding.key_vectors(CPU)[:20].allclose(encoding.key_vectors(CPU)[21:].flip(0))


def test_gradient_of_the_frequencies(tensors):
    """Through the logits and through the values, by differences."""
    q, k, _, q_at, k_at = tensors
    encoding = build("learnable_sinusoidal_rpe")
    weights = torch.randn(2, HEADS, 5, 7, dtype=torch.float64)
    calls = [
        lambda _: encoding.relative_logits(q, k, q_at, k_at),
        lambda _: encoding.relative_values(weights, q_at, k_at),
    ]
    for call in calls:
        assert torch.autograd.gradcheck(call, (encoding.frequencies,))


@pytest.mark.parametrize("name", SINUSOIDAL)
def test_an_odd_head_dim_is_refused(name):
    with pytest.raises(ValueError, match="`head_dim` must be even, but is 5"):
        build(name, 5)
