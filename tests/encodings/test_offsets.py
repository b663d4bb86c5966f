"""Products with vectors of the offset: made for those pairs alone that take them."""

import pytest
import torch

from fairseq_plugins.encodings.offsets import (
    gather_offsets,
    occurring_offsets,
    products_by_offset,
)

HEADS, DIM, QUERIES = 2, 3, 300


def positions(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    consecutive = torch.arange(QUERIES).unsqueeze(0)
    if kind == "consecutive":
        return consecutive, consecutive
    if kind == "padded":  # each row of a batch begins elsewhere
        rows = consecutive + torch.tensor([[2], [7]])
        return rows, rows
    shuffled = torch.randperm(3 * QUERIES)[: 2 * QUERIES].view(2, QUERIES)
    return shuffled, shuffled[:, :37]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["consecutive", "padded", "scattered"])
def test_blocks_of_queries_give_what_all_at_once_give(kind, causal):
    q_at, k_at = positions(kind)
    offsets, low, high = occurring_offsets(q_at, k_at, causal=causal, furthest=0)
    x = torch.randn(2, HEADS, QUERIES, DIM, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(HEADS, high - low + 1, DIM, dtype=torch.float64, requires_grad=True)
    expected = gather_offsets(x @ rows.mT, offsets, low)
    actual = products_by_offset(x, rows, offsets, low)
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(expected)
    for found, right in zip(
        torch.autograd.grad((actual * weight).sum(), (x, rows)),
        torch.autograd.grad((expected * weight).sum(), (x, rows)),
        strict=True,
    ):
        torch.testing.assert_close(found, right)


def test_many_queries_without_keys():
    x, rows = torch.randn(1, HEADS, QUERIES, DIM), torch.randn(HEADS, 1, DIM)
    offsets = torch.empty(1, QUERIES, 0, dtype=torch.int64)
    assert products_by_offset(x, rows, offsets, 0).shape == (1, HEADS, QUERIES, 0)
