"""CoPE against the independent implementation of x-transformers."""

import pytest
import torch

from fairseq_plugins.encodings import build_encoding

HEADS, DIM, LENGTH = 3, 8, 20


@pytest.fixture(scope="module")
def theirs():
    """Its class; imported only where it is asked for, since collecting tests must not wait."""
    module = pytest.importorskip("x_transformers.x_transformers", reason="needs x-transformers")
    return module.CoPE


# Counts that the table has all of, and counts that end at its last vector.
@pytest.mark.parametrize("num_positions", [LENGTH + 1, 4])
def test_scores_and_gradients_are_the_same(theirs, num_positions):
    torch.manual_seed(1)
    own = build_encoding(
        "cope", num_heads=HEADS, head_dim=DIM, causal=True, num_positions=num_positions
    ).double()
    other = theirs(dim=DIM, heads=HEADS, max_pos=num_positions).double()
    with torch.no_grad():
        own.table.normal_()
        other.pos_emb.copy_(own.table)
    positions = torch.arange(LENGTH).expand(2, LENGTH)
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    q = torch.randn(2, HEADS, LENGTH, DIM, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, HEADS, LENGTH, DIM, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, HEADS, LENGTH, LENGTH, dtype=torch.float64) * seen

    logits = (DIM**-0.5 * q @ k.mT).masked_fill(~seen, -torch.finfo(q.dtype).max)
    expected = other(q, logits)
    found = own.relative_logits(q, k, positions, positions)
    torch.testing.assert_close(found[..., seen], expected[..., seen])
    assert found[..., seen].std() > 0.1

    of_other = torch.autograd.grad((expected * weights).sum(), (q, k, other.pos_emb))
    of_own = torch.autograd.grad((found * weights).sum(), (q, k, own.table))
    for one, reference in zip(of_own, of_other, strict=True):
        assert reference.abs().max() > 0.01
        torch.testing.assert_close(one, reference)
