"""What must not matter: where counting starts, padding on either side, and the future."""

import pytest
import torch
from attention_cases import (
    BIDIRECTIONAL,
    CAUSAL,
    DIM,
    DIRECTED,
    HEADS,
    Layer,
    count,
    error,
    tokens,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.attention import build_attention, make_positions
from fairseq_plugins.encodings import ENCODINGS, build_encoding

every_case = pytest.mark.parametrize(("name", "attention", "causal"), DIRECTED)
every_causal = pytest.mark.parametrize(("name", "attention"), CAUSAL)
every_bidirectional = pytest.mark.parametrize(("name", "attention"), BIDIRECTIONAL)
LENGTH = 9


def is_relative(name: str) -> bool:
    return all(ENCODINGS[part].facts.is_relative for part in name.split("+"))


RELATIVE = pytest.mark.parametrize(
    ("name", "attention", "causal"), [case for case in DIRECTED if is_relative(case[0])]
)


@RELATIVE
def test_only_differences_of_positions_count(name, attention, causal):
    """Adding a constant to all positions changes nothing.

    Under linear attention without a denominator, so that it is the scores that are compared: an
    encoded denominator near zero would enlarge the rounding of the float32 tables.
    """
    options = {"normalizer": "none"} if attention == "linear" else {}
    check_shift(Layer(name, attention, causal=causal, **options))


def check_shift(layer: Layer) -> None:
    x = tokens(2, LENGTH)
    at = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 2, 3, 5, 30, 31, 32, 90, 200]])
    with torch.no_grad():
        expected = layer(x, at)
        for shift in (1, 9_973):
            assert error(layer(x, at + shift), expected) <= 2e-6


@every_case
def test_positions_count_at_all(name, attention, causal):
    """The counterpart: stretching the distances does change the result."""
    if not any(ENCODINGS[part].facts.reads_positions for part in name.split("+")):
        return
    layer, x = Layer(name, attention, causal=causal), tokens(1, LENGTH)
    assert error(layer(x, count(LENGTH) * 3), layer(x, count(LENGTH))) > 1e-4


@every_case
def test_padding_never_changes_another_row_or_token(name, attention, causal):
    check_padding(Layer(name, attention, causal=causal))


def check_padding(layer: Layer) -> None:
    lengths, longest = [9, 4, 1], 9
    rows = [tokens(1, n) for n in lengths]
    with torch.no_grad():
        alone = [layer(row, count(row.size(1)))[0] for row in rows]
        for side in ("left", "right"):
            spans, padding = padded_on(side, lengths)
            x = 1e3 * tokens(3, longest)  # Whatever stands in padding must not be seen.
            for b, span in enumerate(spans):
                x[b, span] = rows[b][0]
            output = layer(x, make_positions(padding, longest), padding=padding)
            assert output.isfinite().all(), "not even in padding: a NaN would spread from there"
            for b, span in enumerate(spans):
                assert error(output[b, span], alone[b]) <= 1e-9


def padded_on(side: str, lengths: list[int]) -> tuple[list[slice], Tensor]:
    """Where the tokens of each row are, and the mask (B, S) of padding."""
    longest = max(lengths)
    spans = [slice(longest - n, longest) if side == "left" else slice(0, n) for n in lengths]
    padding = torch.ones(len(lengths), longest, dtype=torch.bool)
    for b, span in enumerate(spans):
        padding[b, span] = False
    return spans, padding


@every_bidirectional
def test_padded_keys_of_cross_attention_do_not_count(name, attention):
    """The queries have one row of positions here, the keys one per sentence."""
    layer, lengths = Layer(name, attention, causal=False), [7, 3]
    x, rows = tokens(2, 5), [tokens(1, n) for n in lengths]
    with torch.no_grad():
        alone = [
            layer(x[b : b + 1], count(5), memory=row, memory_at=count(row.size(1)))[0]
            for b, row in enumerate(rows)
        ]
        for side in ("left", "right"):
            spans, padding = padded_on(side, lengths)
            memory = tokens(2, 7)
            for b, span in enumerate(spans):
                memory[b, span] = rows[b][0]
            at = make_positions(padding, 7)
            output = layer(x, count(5), memory=memory, memory_at=at, padding=padding)
            for b in range(2):
                assert error(output[b], alone[b]) <= 1e-9


@every_bidirectional
def test_gradients_reach_what_is_seen_and_nothing_else(name, attention):
    layer = Layer(name, attention, causal=False)
    check_padding_receives_no_gradient(layer)
    check_everything_is_seen(layer)
    check_rows_do_not_meet(layer)


def check_padding_receives_no_gradient(layer: Layer) -> None:
    x = tokens(2, 6).requires_grad_()
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    output = layer(x, make_positions(padding, 6), padding=padding)
    output[~padding].sum().backward()
    assert x.grad is not None
    assert not x.grad[padding].any()
    assert x.grad[~padding].any(-1).all()


def check_everything_is_seen(layer: Layer) -> None:
    x = tokens(1, LENGTH).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, count(LENGTH))[:, 0].sum(), [x])
    assert gradient.any(-1).all()


def check_rows_do_not_meet(layer: Layer) -> None:
    x = tokens(3, 5).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, count(5))[1].sum(), [x])
    assert not gradient[[0, 2]].any()


@every_causal
def test_the_future_is_not_seen(name, attention):
    check_causality(Layer(name, attention, causal=True))


def check_causality(layer: Layer) -> None:
    x = tokens(2, LENGTH)
    output = layer(x, count(LENGTH))
    for s in (1, 4, LENGTH - 1):
        other = x.clone()
        other[:, s:] = tokens(2, LENGTH - s)
        changed = layer(other, count(LENGTH))
        assert torch.equal(changed[:, :s], output[:, :s])
        assert not torch.equal(changed[:, s], output[:, s])


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@given(seed=st.integers(0, 1000))
def test_without_positions_order_does_not_count(attention, seed):
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, 1, HEADS, 7, DIM, dtype=torch.float64)
    encoding = build_encoding("none", num_heads=HEADS, head_dim=DIM)
    module = build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    shuffled, at = torch.randperm(7), count(7)
    first, _ = module(q, k, v, q_positions=at, k_positions=at)
    second, _ = module(q, k[:, :, shuffled], v[:, :, shuffled], q_positions=at, k_positions=at)
    assert error(first, second) <= 1e-12


@pytest.mark.parametrize(
    ("name", "attention"),
    [("rope", "linear"), ("rope", "vanilla"), ("none", "vanilla"), ("cope", "vanilla")],
)
def test_nan_in_padding_stays_there(name, attention):
    """A weight of 0 times NaN is NaN, so that keys and values of padding are left out."""
    shape = {"num_heads": 2, "head_dim": 8, "causal": True}
    module = build_attention(attention, build_encoding(name, **shape), **shape)
    q, k, v = torch.randn(3, 2, 2, 12, 8)
    padding = torch.arange(12) >= torch.tensor([[12], [7]])
    at = {"q_positions": torch.arange(12)[None], "k_positions": torch.arange(12)[None]}
    outputs = []
    for filler in (0.0, float("nan"), float("inf")):
        filled = [x.masked_fill(padding[:, None, :, None], filler).requires_grad_() for x in (k, v)]
        output, _ = module(q, *filled, **at, key_padding_mask=padding)
        real = output.transpose(1, 2)[~padding]
        gradients = torch.autograd.grad(real.sum(), filled)
        outputs.append(torch.cat([x.flatten() for x in (real, *gradients)]))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])
