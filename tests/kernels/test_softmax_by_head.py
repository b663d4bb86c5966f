"""Softmax attention head by head is the formula, with all gradients."""

import pytest
import torch

from fairseq_plugins.kernels.softmax import softmax_by_head

BATCH, HEADS, QUERIES, KEYS = 3, 2, 5, 7
SHAPES = {
    "none": None,
    "all": (BATCH, HEADS, QUERIES, KEYS),
    "shared by rows": (1, HEADS, QUERIES, KEYS),
    "shared by heads": (BATCH, 1, QUERIES, KEYS),
    "shared by queries": (BATCH, 1, 1, KEYS),
    "of pairs": (QUERIES, KEYS),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("values", [4, 6])
def test_value_and_gradients_are_those_of_the_formula(kind, values):
    like = {"dtype": torch.float64, "requires_grad": True}
    q = torch.randn(BATCH, QUERIES, HEADS, 4, **like).transpose(1, 2)
    k, v = (torch.randn(BATCH, HEADS, KEYS, width, **like) for width in (4, values))
    shape, scale, share = SHAPES[kind], 0.3, 0.7
    added = None if shape is None else torch.randn(*shape, **like)
    # A leaf's own entries stay finite: what is hidden is added behind it.
    hidden = None
    if added is not None:
        hidden = torch.zeros(shape, dtype=torch.float64)
        hidden[..., 0] = float("-inf")
    whole = None if added is None else added + hidden
    logits = scale * q @ k.mT + (0 if whole is None else share * whole)
    expected = logits.softmax(-1) @ v
    actual = softmax_by_head(q, k, v, whole, scale=scale, share=share)
    torch.testing.assert_close(actual, expected)
    leaves = [x for x in (q, k, v, added) if x is not None]
    grad = torch.randn_like(expected)
    for found, right in zip(
        torch.autograd.grad(actual, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    ):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize(("batch", "queries"), [(0, 3), (2, 0)])
def test_nothing_to_attend_from(batch, queries):
    q, k = torch.randn(batch, HEADS, queries, 4), torch.randn(batch, HEADS, KEYS, 4)
    added = torch.zeros(1, HEADS, queries, KEYS, requires_grad=True)
    output = softmax_by_head(q, k, k, added, scale=1.0)
    output.sum().backward()
    assert output.shape == q.shape
    assert not added.grad.any()
