"""Decoding token by token equals the whole sequence at once, through a beam's reordering."""

import pytest
import torch
from attention_cases import (
    BIDIRECTIONAL,
    CAUSAL,
    DIM,
    HEADS,
    WIDTH,
    Layer,
    count,
    error,
    more_for_each_mechanism,
    one_of_each_mechanism,
    tokens,
)
from torch import Tensor

from fairseq_plugins.attention import make_positions
from fairseq_plugins.attention.base import State
from fairseq_plugins.attention.cache import append_rows, reordered

LENGTH, CUT = 14, 6
every_pair = pytest.mark.parametrize(("name", "attention"), CAUSAL)


def reorder(state: State, order: Tensor) -> State:
    return {name: tensor.index_select(0, order) for name, tensor in state.items()}


def decode(layer: Layer, x: Tensor, y: Tensor, order: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Outputs of x (B, CUT, C), then of y after the rows became ``order``, both embedded.

    ``first`` tokens go in at once, as a prompt does; the rest one by one.
    """
    before, state = layer.step(x[:, :first], count(first), None)
    outputs = [before]
    for s in range(first, x.size(1)):
        output, state = layer.step(x[:, s : s + 1], count(1, s), state)
        outputs.append(output)
    state = reorder(state, order)
    later = []
    for s in range(y.size(1)):
        output, state = layer.step(y[:, s : s + 1], count(1, x.size(1) + s), state)
        later.append(output)
    return torch.cat(outputs, 1), torch.cat(later, 1)


def check_decoding(layer: Layer, dtype: torch.dtype, first: int, tolerance: float) -> None:
    x, y = tokens(3, CUT, dtype), tokens(4, LENGTH - CUT, dtype)
    order = torch.tensor([2, 0, 0, 1])  # A beam may duplicate rows, and grow or shrink.
    whole = torch.cat((x[order], y), 1)
    embedded_y = layer.embed(whole, count(LENGTH))[:, CUT:]
    before, after = decode(layer, layer.embed(x, count(CUT)), embedded_y, order, first)
    whole = layer(whole, count(LENGTH))
    assert error(before[order], whole[:, :CUT]) <= tolerance
    assert error(after, whole[:, CUT:]) <= tolerance


@pytest.mark.parametrize(("name", "attention", "first"), more_for_each_mechanism(CAUSAL, [4, 1]))
def test_incremental_is_full_in_float64(name, attention, first):
    layer = Layer(name, attention, causal=True, dtype=torch.float64)
    check_decoding(layer, torch.float64, first, 1e-9)


@pytest.mark.parametrize(
    ("name", "attention", "sizes"),
    more_for_each_mechanism(CAUSAL, [(1, 5, 1, 2), (3, 2, 4), (9,)]),
    ids=str,
)
def test_steps_of_any_size(name, attention, sizes):
    check_steps(Layer(name, attention, causal=True), sizes)


def check_steps(layer: Layer, sizes: tuple[int, ...]) -> None:
    """Several tokens at once after others, each of which sees those before it only."""
    x = tokens(2, 9)
    outputs, state, start = [], None, 0
    embedded = layer.embed(x, count(9))
    for size in sizes:
        output, state = layer.step(embedded[:, start : start + size], count(size, start), state)
        outputs.append(output)
        start += size
    assert error(torch.cat(outputs, 1), layer(x, count(9))) <= 1e-9


@pytest.mark.parametrize(("name", "attention"), one_of_each_mechanism(CAUSAL))
def test_incremental_is_full_in_float32(name, attention):
    # Against the largest output: near a zero of an encoded denominator (lrpe_type8 under linear
    # attention) outputs are large, and float32 is exact relative to them only. The test above
    # holds the same to 1e-9 in float64.
    layer = Layer(name, attention, causal=True, dtype=torch.float32)
    check_decoding(layer, torch.float32, 1, 1e-5)


@pytest.mark.parametrize(
    ("name", "attention", "normalizer"),
    more_for_each_mechanism([pair for pair in CAUSAL if pair[1] == "linear"], ["plain", "none"]),
)
def test_incremental_is_full_with_the_other_denominators(name, attention, normalizer):
    layer = Layer(name, attention, causal=True, dtype=torch.float32, normalizer=normalizer)
    check_decoding(layer, torch.float32, 2, 1e-5)


@every_pair
def test_a_prompt_padded_on_the_left(name, attention):
    check_padded_prompt(Layer(name, attention, causal=True))


def check_padded_prompt(layer: Layer) -> None:
    """Rows of other length, padded on the left, then decoded: each as if it were alone."""
    lengths, prompt, new = [5, 2, 4], 5, 3
    padding = torch.tensor([[s < prompt - n for s in range(prompt)] for n in lengths])
    x, y = tokens(3, prompt), tokens(3, new)
    positions = make_positions(padding, prompt)
    later = torch.tensor(lengths).unsqueeze(1) + torch.arange(new)
    embedded = layer.embed(torch.cat((x, y), 1), torch.cat((positions, later), 1))
    _, state = layer.step(embedded[:, :prompt], positions, None, padding)
    outputs = []
    for s in range(new):
        at = slice(prompt + s, prompt + s + 1)
        output, state = layer.step(embedded[:, at], later[:, s : s + 1], state)
        outputs.append(output)
    decoded = torch.cat(outputs, 1)
    for b, n in enumerate(lengths):
        alone = torch.cat((x[b, prompt - n :], y[b])).unsqueeze(0)
        assert error(decoded[b], layer(alone, count(n + new))[0, n:]) <= 1e-9


@every_pair
def test_padding_in_the_middle_of_decoding(name, attention):
    check_padding_in_the_middle(Layer(name, attention, causal=True))


def check_padding_in_the_middle(layer: Layer) -> None:
    """A row whose step is padding (a forced prefix of other length) is as if it had waited."""
    x = tokens(2, 6)
    padded_at = 3
    state = None
    outputs = []
    kept = [s for s in range(6) if s != padded_at]
    embedded = layer.embed(x, count(6))
    embedded[0, kept] = layer.embed(x[:1, kept], count(5))[0]
    for s in range(6):
        padding = torch.tensor([[s == padded_at], [False]])
        positions = torch.tensor([[s - (s > padded_at)], [s]])
        output, state = layer.step(embedded[:, s : s + 1], positions, state, padding)
        outputs.append(output)
    decoded = torch.cat(outputs, 1)
    assert error(decoded[0, kept], layer(x[:1, kept], count(5))[0]) <= 1e-9
    assert error(decoded[1], layer(x[1:], count(6))[0]) <= 1e-9


@pytest.mark.parametrize(
    ("name", "attention", "padded"),
    more_for_each_mechanism(BIDIRECTIONAL, ["left", None, "right"]),
)
def test_cross_attention_remembers_its_keys(name, attention, padded):
    layer = Layer(name, attention, causal=False)
    x, memory = tokens(2, 5), tokens(2, 7)
    padding = None
    if padded:
        padding = torch.zeros(2, 7, dtype=torch.bool)
        padding[1, slice(0, 3) if padded == "left" else slice(4, 7)] = True
    memory_at = make_positions(padding, 7)
    order = torch.tensor([1, 0, 1])
    whole = layer(x, count(5), memory=memory, memory_at=memory_at, padding=padding)
    state = layer.remember(layer.embed(memory, memory_at, padding), memory_at, padding)
    x = layer.embed(x, count(5))
    early = torch.cat([layer.attend(x[:, s : s + 1], count(1, s), state) for s in range(3)], 1)
    assert error(early, whole[:, :3]) <= 1e-9
    state = reorder(state, order)
    x = x[order]
    late = torch.cat([layer.attend(x[:, s : s + 1], count(1, s), state) for s in range(3, 5)], 1)
    assert error(late, whole[order, 3:]) <= 1e-9


@every_pair
def test_a_state_has_the_batch_first_and_one_size_under_linear_attention(name, attention):
    """The same at any context, and so is the work of a step; softmax keeps every key."""
    layer = Layer(name, attention, causal=True)
    _, state = layer.step(tokens(3, 2), count(2), None)
    assert all(tensor.size(0) == 3 for tensor in state.values())
    sizes, state = [], None
    for s in range(20):
        _, state = layer.step(tokens(1, 1), count(1, s), state)
        sizes.append(sum(tensor.numel() for tensor in state.values()))
    if attention == "linear":
        encoded = layer.encoding.encoded_dim
        # The sums of k v^T, of k, and of the norms of k; what the encoding adds is small.
        sums = HEADS * (encoded * DIM + encoded + 1)
        assert len(set(sizes)) == 1
        assert sums <= sizes[0] <= sums + 2
    else:
        assert state["k_positions"].size(1) == 20


def test_a_cache_grows_by_doubling_and_keeps_every_row():
    """Also where two steps go on from one state, and after a beam was reordered."""
    rows = torch.randn(2, HEADS, 300, DIM)
    buffer, capacities, memory = rows[:, :, :1], set(), set()
    for s in range(1, 300):
        buffer = append_rows(buffer, s, rows[:, :, s : s + 1])
        capacities.add(buffer.size(2))
        memory.add(buffer.data_ptr())
    assert torch.equal(buffer[:, :, :300], rows)
    assert sorted(capacities) == [64, 128, 256, 512]
    assert len(memory) <= 4
    first = append_rows(buffer, 300, rows[:, :, :1])
    second = append_rows(buffer, 300, rows[:, :, 1:2])
    assert torch.equal(first[:, :, 300], rows[:, :, 0])
    assert torch.equal(second[:, :, 300], rows[:, :, 1])
    moved = append_rows(first.index_select(0, torch.tensor([1, 1])), 301, rows[:, :, 2:3])
    assert torch.equal(moved[0, :, :300], rows[1])
    assert torch.equal(moved[:, :, 301], rows[:, :, 2])


# Of a tensor of three sequences, others in the same memory.
VIEWS = {
    "first": lambda x: x[:1],
    "whole": lambda x: x[:],
    "detached": lambda x: x.detach(),
    "repeated": lambda x: x[:1].expand(3, *x.shape[1:]),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("name", "attention"), [("rope", "vanilla"), ("rope+shaw", "vanilla"), ("rope", "linear")]
)
def test_views_of_a_state_go_on_apart(name, attention, view, mode):
    """Two continuations of them, and one of the state itself, share its memory and no token."""
    layer, make = Layer(name, attention, causal=True), VIEWS[view]
    with mode():
        x = layer.embed(tokens(3, CUT), count(CUT))
        state = None
        for s in range(CUT):
            _, state = layer.step(x[:, s : s + 1], count(1, s), state)
        own, one, other = ({key: make(t) for key, t in state.items()} for _ in range(3))
        own = {key: t.clone() for key, t in own.items()}
        y, z = torch.randn(2, 2, len(make(x)), 1, WIDTH, dtype=x.dtype)
        at = count(1, CUT)
        _, own = layer.step(y[0], at, own)
        _, one = layer.step(y[0], at, one)
        layer.step(z[0], at, other)
        layer.step(tokens(3, 1), at, state)
        expected, _ = layer.step(y[1], at + 1, own)
        output, _ = layer.step(y[1], at + 1, one)
        assert error(output, expected) <= 1e-12


def test_a_step_copies_no_buffer_that_is_its_own():
    """Neither one that a step made nor one that a beam's reordering did."""
    rows = torch.randn(3, HEADS, 8, DIM)
    buffer = append_rows(rows[:, :, :5], 5, rows[:, :, 5:6])
    state = reordered({"k": buffer}, torch.tensor([2, 0]))
    for owned, count_of_rows in ((buffer, 3), (state["k"], 2)):
        longer = append_rows(owned, 6, rows[:count_of_rows, :, 6:7])
        assert longer.data_ptr() == owned.data_ptr()
    assert torch.equal(state["k"][:, :, :6], rows[[2, 0], :, :6])


def test_a_cache_under_autograd_is_not_written_in_place():
    old = torch.randn(1, 1, 2, 3, requires_grad=True)
    new = torch.randn(1, 1, 1, 3, requires_grad=True)
    result = append_rows(old, 2, new)
    (result**2).sum().backward()
    assert torch.equal(old.grad, 2 * old)
    assert torch.equal(new.grad, 2 * new)


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_cache_of_inference_mode_goes_on_outside(has_gradient):
    rows = torch.randn(1, 1, 4, 3)
    with torch.inference_mode():
        buffer = append_rows(rows[:, :, :1], 1, rows[:, :, 1:2])
        assert append_rows(buffer, 2, rows[:, :, 2:3]).data_ptr() == buffer.data_ptr()
        buffer = append_rows(rows[:, :, :1], 1, rows[:, :, 1:2])
    with torch.set_grad_enabled(has_gradient):
        buffer = append_rows(buffer, 2, rows[:, :, 2:3])
        buffer = append_rows(buffer, 3, rows[:, :, 3:])
    assert torch.equal(buffer[:, :, :4], rows)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_a_linear_decoder_are_wide(dtype):
    """At 300 tokens a bfloat16 sum of ones would stand still at 256."""
    layer = Layer("none", "linear", causal=True, dtype=dtype)
    ones = torch.ones(1, HEADS, 1, DIM, dtype=dtype)
    state = None
    for s in range(300):
        output, state = layer.attention.step(ones, ones, ones, positions=count(1, s), state=state)
    assert state is not None
    assert output.dtype == dtype
    assert all(tensor.dtype == torch.float32 for tensor in state.values())
    assert state["k_sum"].unique().tolist() == [600.0]  # phi(1) = 2
