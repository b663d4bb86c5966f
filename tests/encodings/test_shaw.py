"""Shaw's relative vectors against the (T, S, D) tensors of the paper."""

import pytest
import torch

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import build_encoding

HEADS, DIM, CLIP = 2, 4, 3


def build(**options):
    encoding = build_encoding(
        "shaw", num_heads=HEADS, head_dim=DIM, max_distance=CLIP, **options
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


def test_terms_are_those_of_the_full_tensors(tensors):
    q, k, _, q_at, k_at = tensors
    encoding = build()
    keys = gathered(encoding.key_table, q_at, k_at)
    logits = encoding.relative_logits(q, k, q_at, k_at)
    torch.testing.assert_close(logits, torch.einsum("bhtd,tsd->bhts", q, keys))
    weights = torch.randn(2, HEADS, 5, 7, dtype=torch.float64)
    values = gathered(encoding.value_table, q_at, k_at)
    expected = torch.einsum("bhts,tsd->bhtd", weights, values)
    torch.testing.assert_close(encoding.relative_values(weights, q_at, k_at), expected)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_is_the_papers_equations(tensors, values, need_weights):
    """z_s = sum_t softmax(q_s (k_t + a^K_st) / sqrt(d)) (v_t + a^V_st), Eq. 3 and 4."""
    q, k, v, q_at, k_at = tensors
    encoding = build(values=values)
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    keys = k.unsqueeze(2) + gathered(encoding.key_table, q_at, k_at)
    logits = torch.einsum("bhtd,bhtsd->bhts", q, keys) / DIM**0.5
    weights = logits.softmax(-1)
    added = gathered(encoding.value_table, q_at, k_at) if values else 0.0
    expected = torch.einsum("bhts,bhtsd->bhtd", weights, v.unsqueeze(2) + added)
    output, returned = attention(
        q, k, v, q_positions=q_at, k_positions=k_at, need_weights=need_weights
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(returned, weights)


def test_the_key_only_form_has_no_values():
    encoding = build(values=False)
    assert encoding.hooks == {"relative_logits"}
    assert [tuple(p.shape) for p in encoding.parameters()] == [(2 * CLIP + 1, DIM)]
    assert build().hooks == {"relative_logits", "relative_values"}


def test_offsets_beyond_the_clip_share_a_vector():
    encoding, q = build(), torch.randn(1, HEADS, 1, DIM, dtype=torch.float64)
    k, at = torch.randn(1, HEADS, 4, DIM, dtype=torch.float64), torch.tensor([[50]])
    far = encoding.relative_logits(q, k, at, torch.tensor([[0, 46, 47, 48]]))
    assert far[..., 0].equal(far[..., 1])
    assert far[..., 0].equal(far[..., 2])
    assert not far[..., 0].equal(far[..., 3])


def test_a_clip_below_one_is_refused():
    with pytest.raises(ValueError, match="`max_distance` must be at least 1, but is 0"):
        build_encoding("shaw", num_heads=2, head_dim=4, max_distance=0)
    assert build_encoding("shaw", num_heads=2, head_dim=4).max_distance == 64
