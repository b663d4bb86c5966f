"""The fairseq adapter with every encoding: steps, beams, fixed keys and positions.

``test_multihead.py`` holds it beside fairseq's own module. Shapes are fairseq's: T x B x C.
"""

import pytest
import torch
from attention_cases import (
    BIDIRECTIONAL,
    CAUSAL,
    DIM,
    HEADS,
    VOCAB,
    WIDTH,
    count,
    error,
    more_for_each_mechanism,
    steps_of,
)
from torch import Tensor

from fairseq_plugins.attention import build_attention, make_positions
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import build_encoding

multihead = pytest.importorskip(
    "fairseq_plugins.attention.multihead", reason="the adapter needs fairseq"
)


def build(name: str, attention: str = "vanilla", *, causal: bool, **options):
    encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, causal=causal, vocab_size=VOCAB)
    inner = build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    return multihead.FairseqMultiheadAttention(WIDTH, inner, **options).double()


def words(length: int, batch: int = 3) -> Tensor:
    return torch.randn(length, batch, WIDTH, dtype=torch.float64)


def padded_on(side: str | None, batch: int, length: int) -> Tensor | None:
    """Two padded places in the last row."""
    if side is None:
        return None
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[-1, slice(0, 2) if side == "left" else slice(length - 2, length)] = True
    return mask


@pytest.mark.parametrize(
    ("name", "attention", "padded"), more_for_each_mechanism(CAUSAL, ["left", None])
)
def test_incremental_is_full_through_a_beam(name, attention, padded):
    module, x, order = build(name, attention, causal=True), words(8), torch.tensor([2, 0, 2])
    padding, state = padded_on(padded, 3, 8), {}
    for now, at in zip(x[:4].split(1), steps_of(Positions.of(padding, 8), [1] * 4), strict=True):
        module(now, now, now, at, incremental_state=state, need_weights=False)
    module.reorder_incremental_state(state, order)
    mask = None if padding is None else padding[order]
    steps = steps_of(Positions.of(mask, 8), [1] * 8)[4:]
    later = [
        module(now, now, now, at, state, need_weights=False)[0]
        for now, at in zip(x[4:].split(1), steps, strict=True)
    ]
    both = torch.cat((x[:4, order], x[4:]))
    whole, _ = module(both, both, both, mask, need_weights=False)
    assert error(torch.cat(later), whole[4:]) <= 1e-9


@pytest.mark.parametrize(
    ("name", "attention", "padded"),
    more_for_each_mechanism(BIDIRECTIONAL, ["left", None, "right"]),
)
def test_cross_attention_keeps_its_keys_while_decoding(name, attention, padded):
    module = build(name, attention, causal=False, encoder_decoder_attention=True)
    x, memory = words(6), words(7)
    padding, order, state = padded_on(padded, 3, 7), torch.tensor([1, 2, 2]), {}
    steps, keys = steps_of(Positions.of(None, 6), [1] * 6), Positions.of(padding, 7)
    for s in range(3):
        at = steps[s].across(keys)
        # fairseq gives the keys at every step; they are read at the first.
        module(x[s : s + 1], memory, memory, at, state, need_weights=False, static_kv=True)
    module.reorder_incremental_state(state, order)
    mask = None if padding is None else padding[order]
    keys, later = Positions.of(mask, 7), []
    for s in range(3, 6):
        now, at = x[s : s + 1], steps[s].across(keys)
        later.append(module(now, None, None, at, state, need_weights=False, static_kv=True)[0])
    both, keys = torch.cat((x[:3, order], x[3:])), memory[:, order]
    whole, _ = module(both, keys, keys, mask, need_weights=False)
    assert error(torch.cat(later), whole[3:]) <= 1e-9


@pytest.mark.parametrize(
    ("name", "attention", "cross"), more_for_each_mechanism(BIDIRECTIONAL, [True, False])
)
def test_positions_are_those_of_the_padding_mask(name, attention, cross):
    """The adapter against the inner attention with positions made by hand."""
    module = build(name, attention, causal=False, encoder_decoder_attention=cross)
    x, padding = words(6), padded_on("left", 3, 6)
    output, _ = module(x, x, x, padding, need_weights=False)
    q, k, v = (
        projection(x).unflatten(-1, (HEADS, DIM)).permute(1, 2, 0, 3)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    at = make_positions(padding, 6)
    inner, _ = module.attention(
        q,
        k,
        v,
        q_positions=count(6) if cross else at,
        k_positions=at,
        key_padding_mask=padding,
    )
    expected = module.out_proj(inner.permute(2, 0, 1, 3).flatten(2))
    assert error(output, expected) <= 1e-12


def test_weights_are_given_where_an_encoding_made_them_and_they_were_asked_for():
    module, x = build("shaw", causal=True), words(5)
    assert module(x, x, x, need_weights=False)[1] is None
    assert module(x, x, x, need_weights=True)[1].shape == (3, 5, 5)
    assert module(x, x, x, need_head_weights=True)[1].shape == (HEADS, 3, 5, 5)
