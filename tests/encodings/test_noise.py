"""Noise is drawn per position: how tokens and positions are grouped for it."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.encodings.noise import draw_seed, group_by_position, runs, standard_normal


@given(
    rows=st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 12), min_size=n, max_size=n), min_size=1, max_size=4
        )
    )
)
def test_tokens_are_grouped_by_position(rows):
    at = torch.tensor(rows)
    batch, length = at.shape
    unique, owner, slot = group_by_position(at, batch)
    assert unique.tolist() == sorted({p for row in rows for p in row})
    assert slot.unique().numel() == at.numel(), "a slot holds one token"
    assert torch.equal(unique[owner[slot // batch]], at)
    assert len(owner) <= len(unique) + length


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_are_the_stretches(numbers):
    ascending = sorted(numbers)
    found = list(runs(ascending))
    assert [n for start, length in found for n in range(start, start + length)] == ascending
    assert all(start - 1 not in numbers and start + n not in numbers for start, n in found)


def test_noise_is_drawn_under_another_default_device():
    torch.manual_seed(1)
    expected = standard_normal(draw_seed(), "x", (3,))
    torch.manual_seed(1)
    with torch.device("meta"):
        drawn = standard_normal(draw_seed(), "x", (3,))
    assert torch.equal(drawn, expected)
