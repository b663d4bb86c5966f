"""Positions from the padding mask and the decoding step."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from fairseq_plugins.attention import make_positions
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.encodings.position_bounds import known_end, with_end


def test_without_padding_one_row_serves_the_batch():
    assert make_positions(None, 4).tolist() == [[0, 1, 2, 3]]
    assert make_positions(None, 2, offset=7).tolist() == [[7, 8]]
    assert make_positions(None, 2, offset=torch.tensor([[1], [5]])).tolist() == [[1, 2], [5, 6]]
    assert make_positions(None, 3).dtype == torch.int64


def test_padding_on_either_side_is_not_counted():
    mask = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    positions = make_positions(mask.bool(), 5)
    assert positions[0, 2:].tolist() == [0, 1, 2]
    assert positions[1, :3].tolist() == [0, 1, 2]
    assert positions[2].tolist() == [0, 1, 2, 3, 4]
    assert positions.dtype == torch.int64


def test_a_step_goes_on_where_the_tokens_ended():
    seen = torch.tensor([[2], [5]])
    mask = torch.tensor([[False, False, True], [True, False, False]])
    positions = make_positions(mask, 3, offset=seen)
    assert positions[0, :2].tolist() == [2, 3]
    assert positions[1, 1:].tolist() == [5, 6]


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4))
def test_tokens_count_from_zero_and_padding_stays_in_range(rows):
    mask = torch.tensor(rows)
    positions = make_positions(mask, 6)
    assert positions.shape == mask.shape
    for row, hidden in zip(positions, mask, strict=True):
        assert row[~hidden].tolist() == list(range(int((~hidden).sum())))
        # Padding too has a position that some table has: a learned one must not refuse it.
        assert row.min() >= 0
        assert row.max() <= max(int((~hidden).sum()) - 1, 0)


@pytest.mark.parametrize("device", [torch.device("cpu"), torch.device("meta")])
def test_the_device_is_the_callers(device):
    assert make_positions(None, 3, device=device).device == device


@pytest.mark.parametrize("padded", [False, True])
def test_the_value_of_a_pass_says_its_end_where_encodings_look_for_it(padded):
    mask = torch.tensor([[False, False, False], [False, False, True]]) if padded else None
    positions = Positions.of(mask, 3)
    assert torch.equal(positions.index, make_positions(mask, 3))
    assert known_end(positions.index) == 3
    last = positions.last(2)
    assert last.index.tolist() == ([[2], [1]] if padded else [[2], [2]])
    assert known_end(last.index) == 3
    assert (last.padding_mask is None) == (mask is None)
    with pytest.raises(AttributeError):
        positions.index = last.index


def test_an_end_is_of_one_tensor_alone():
    """What is made of it may reach further."""
    at = with_end(make_positions(None, 4), 4)
    assert known_end(at) == 4
    assert known_end(at + 1) is None
    assert known_end(at, with_end(at + 1, 5)) == 5
    assert known_end(at, at + 1) is None
    assert known_end(with_end(at + 1, None)) is None


@torch.no_grad()
@pytest.mark.parametrize("name", ["rope", "lrpe_type3"])
def test_positions_that_were_used_are_saved_and_copied_as_plain_tensors(name, tmp_path):
    encoding = build_encoding(name, num_heads=2, head_dim=8, max_positions=64)
    x, at = torch.randn(1, 2, 5, 8), with_end(torch.arange(5).unsqueeze(0), 5)
    encoded = encoding.transform_query(x, at)
    torch.save(at, tmp_path / "at.pt")
    for other in (torch.load(tmp_path / "at.pt", weights_only=True), copy.deepcopy(at)):
        assert torch.equal(other, at)
        assert torch.equal(encoding.transform_query(x, other), encoded)


@torch.no_grad()
@pytest.mark.parametrize("name", ["rope", "lrpe_type3"])
def test_a_recorded_graph_takes_other_positions_than_those_it_was_recorded_at(name):
    encoding = build_encoding(name, num_heads=2, head_dim=8, max_positions=64)
    x, at = torch.randn(1, 2, 5, 8), torch.arange(5).unsqueeze(0)
    encoding.transform_query(x, at)  # keeps the angles of these positions
    graph = make_fx(lambda x, at: encoding.transform_query(x, at))(x, at)
    assert torch.equal(graph(x, at + 7), encoding.transform_query(x, at + 7))
