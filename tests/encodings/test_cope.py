"""CoPE against the paper's equations in loops, and what counting by content means."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import IncompatibleEncodingError, build_encoding
from fairseq_plugins.encodings.cope import CoPE, contextual_positions

HEADS, DIM, LENGTH = 2, 4, 9


def build(**options) -> CoPE:
    encoding = build_encoding(
        "cope", num_heads=HEADS, head_dim=DIM, max_positions=32, causal=True, **options
    ).double()
    assert isinstance(encoding, CoPE)
    with torch.no_grad():
        encoding.table.normal_()
    return encoding


def count(length: int) -> Tensor:
    return torch.arange(length).unsqueeze(0)


def logits_of(encoding: CoPE, q: Tensor, k: Tensor) -> Tensor:
    return encoding.relative_logits(q, k, count(k.size(2))[:, -q.size(2) :], count(k.size(2)))


def by_the_paper(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Eq. 3 to 5 of one head: (T, D), (T, D), (P, D) -> (T, T), pair by pair."""
    length, last = len(q), len(table) - 1
    result = torch.zeros(length, length, dtype=torch.float64)
    for i in range(length):
        gates = [1 / (1 + math.exp(-float(q[i] @ k[j]) / math.sqrt(DIM))) for j in range(i + 1)]
        for j in range(i + 1):
            p = min(sum(gates[j:]), last)
            low, high = math.floor(p), math.ceil(p)
            vector = (p - low) * table[high] + (1 - p + low) * table[low]
            result[i, j] = float(q[i] @ vector)
    return result


@pytest.mark.parametrize("num_positions", [0, 64, 4, 2])
def test_logits_are_the_papers(num_positions):
    """Also where counts reach the last vector."""
    encoding = build(num_positions=num_positions)
    q, k = torch.randn(2, 2, HEADS, LENGTH, DIM, dtype=torch.float64)
    actual = logits_of(encoding, q, k)
    for b in range(2):
        for h in range(HEADS):
            expected = by_the_paper(q[b, h], k[b, h], encoding.table)
            torch.testing.assert_close(actual[b, h], expected)


def test_open_gates_count_tokens():
    """With every gate at 1 it is a learned vector per distance: s - t + 1."""
    encoding = build()
    q = torch.full((1, HEADS, LENGTH, DIM), 100.0, dtype=torch.float64)
    actual = logits_of(encoding, q, q)
    by_distance = q[0, 0, 0] @ encoding.table.mT
    for s in range(LENGTH):
        for t in range(s + 1):
            torch.testing.assert_close(actual[0, 0, s, t], by_distance[s - t + 1])


def test_closed_gates_count_nothing():
    encoding, q = build(), torch.full((1, HEADS, LENGTH, DIM), 100.0, dtype=torch.float64)
    actual = logits_of(encoding, q, -q)
    expected = (q[0, 0, 0] @ encoding.table[0]).expand(LENGTH, LENGTH).tril()
    torch.testing.assert_close(actual[0, 0], expected)


def test_a_key_that_does_not_count_may_come_or_go():
    """What CoPE is for: positions of the others stay, whatever stands between."""
    encoding = build()
    torch.manual_seed(1)
    q = torch.rand(1, HEADS, LENGTH, DIM, dtype=torch.float64) + 0.5
    k = torch.randn(1, HEADS, LENGTH, DIM, dtype=torch.float64)
    k[:, :, 4] = -1e4  # its gate is 0 for every query
    whole = logits_of(encoding, q, k)
    kept = [i for i in range(LENGTH) if i != 4]
    without = logits_of(encoding, q[:, :, kept], k[:, :, kept])
    torch.testing.assert_close(whole[:, :, kept][..., kept], without)


@pytest.mark.parametrize("mask", ["bool", "float", "per row", "padding"])
def test_a_key_that_is_hidden_is_not_counted(mask):
    """However it is hidden, the others are as without it."""
    attention = build_attention(
        "vanilla", build(), num_heads=HEADS, head_dim=DIM, causal=True
    ).double()
    q, k, v = torch.randn(3, 2, HEADS, LENGTH, DIM, dtype=torch.float64)
    hidden = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    hidden[:, 4] = True
    masks = {
        "bool": {"attn_mask": hidden},
        "float": {"attn_mask": torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))},
        "per row": {"attn_mask": hidden.expand(2, -1, -1)},
        "padding": {"key_padding_mask": hidden[:1].expand(2, -1)},
    }

    def attend(at: list[int], **given: Tensor) -> Tensor:
        rows = (x[:, :, at] for x in (q, k, v))
        positions = count(len(at))
        return attention(*rows, q_positions=positions, k_positions=positions, **given)[0]

    kept = [i for i in range(LENGTH) if i != 4]
    whole = attend([*range(LENGTH)], **masks[mask])
    torch.testing.assert_close(whole[:, :, kept], attend(kept))


def test_positions_rise_with_the_distance_and_are_at_most_the_tokens():
    gates = torch.rand(3, LENGTH, LENGTH).tril()
    counted = contextual_positions(gates)
    assert (counted.diff(dim=-1) <= 0).all()
    tokens = (count(LENGTH).mT - count(LENGTH) + 1).clamp(min=0)
    assert (counted <= tokens + 1e-5).all()


def test_gradients_reach_the_gates():
    """Through the interpolation alone: queries times vectors would leave keys without."""
    encoding = build()
    q, k = torch.randn(2, 1, HEADS, 5, DIM, dtype=torch.float64)
    k.requires_grad_()
    assert torch.autograd.gradcheck(lambda k: logits_of(encoding, q, k), [k])
    (gradient,) = torch.autograd.grad(logits_of(encoding, q, k).square().sum(), [k])
    assert gradient.any()


def test_a_new_model_is_one_without_positions():
    q, k, v = torch.randn(3, 2, HEADS, LENGTH, DIM)
    outputs = []
    for name in ("cope", "none"):
        encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, causal=True)
        attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=True)
        at = count(LENGTH)
        outputs.append(attention(q, k, v, q_positions=at, k_positions=at)[0])
    torch.testing.assert_close(*outputs)


def test_half_precision_counts_beyond_256():
    encoding = build(num_positions=400).float()
    with torch.no_grad():
        encoding.table.copy_(torch.arange(400.0).unsqueeze(-1) / 400)
    q = torch.full((1, HEADS, 300, DIM), 8.0, dtype=torch.bfloat16)
    actual = logits_of(encoding, q, q)[0, 0, -1].float()
    assert (actual[0] - 32 * 300 / 400).abs() < 0.2
    assert (actual[20] - 32 * 280 / 400).abs() < 0.2


@pytest.mark.parametrize("num_positions", [1, -3])
def test_a_table_of_one_vector_is_refused(num_positions):
    message = f"`num_positions` must be .*, but is {num_positions} instead"
    with pytest.raises(ValueError, match=message):
        build(num_positions=num_positions)


@pytest.mark.parametrize(("attention", "causal"), [("vanilla", False), ("linear", True)])
def test_other_directions_and_linear_attention_are_refused(attention, causal):
    encoding = build_encoding("cope", num_heads=HEADS, head_dim=DIM, causal=causal)
    with pytest.raises(IncompatibleEncodingError, match="'cope'"):
        build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
