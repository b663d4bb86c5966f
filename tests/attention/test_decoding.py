"""Decoding token by token equals the whole sequence at once, through a beam's reordering."""

import itertools

import pytest
import torch
from attention_cases import (
    COMPATIBLE,
    DIM,
    HEADS,
    Layer,
    count,
    error,
    tokens,
)
from torch import Tensor

from fairseq_plugins.attention import make_positions
from fairseq_plugins.attention.base import State

LENGTH, CUT = 14, 6
every_pair = pytest.mark.parametrize(("name", "attention"), COMPATIBLE)


def reorder(state: State, order: Tensor) -> State:
    return {name: tensor.index_select(0, order) for name, tensor in state.items()}


def decode(layer: Layer, x: Tensor, y: Tensor, order: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Outputs of x (B, CUT, C), then of y after the rows became ``order``.

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
    before, after = decode(layer, x, y, order, first)
    whole = layer(torch.cat((x[order], y), 1), count(LENGTH))
    assert error(before[order], whole[:, :CUT]) <= tolerance
    assert error(after, whole[:, CUT:]) <= tolerance


@every_pair
@pytest.mark.parametrize("first", [1, 4])
def test_incremental_is_full_in_float64(name, attention, first):
    layer = Layer(name, attention, causal=True, dtype=torch.float64)
    check_decoding(layer, torch.float64, first, 1e-9)


@every_pair
@pytest.mark.parametrize("sizes", [(3, 2, 4), (1, 5, 1, 2), (9,)], ids=str)
def test_steps_of_any_size(name, attention, sizes):
    """Several tokens at once after others, each of which sees those before it only."""
    layer, x = Layer(name, attention, causal=True), tokens(2, 9)
    outputs, state, start = [], None, 0
    for size in sizes:
        output, state = layer.step(x[:, start : start + size], count(size, start), state)
        outputs.append(output)
        start += size
    assert error(torch.cat(outputs, 1), layer(x, count(9))) <= 1e-9


@every_pair
def test_incremental_is_full_in_float32(name, attention):
    # Against the largest output: near a zero of an encoded denominator (lrpe_type8 under linear
    # attention) outputs are large, and float32 is exact relative to them only. The test above
    # holds the same to 1e-9 in float64.
    layer = Layer(name, attention, causal=True, dtype=torch.float32)
    check_decoding(layer, torch.float32, 1, 1e-5)


@every_pair
@pytest.mark.parametrize("normalizer", ["plain", "none"])
def test_incremental_is_full_with_the_other_denominators(name, attention, normalizer):
    if attention == "vanilla":
        return
    layer = Layer(name, attention, causal=True, dtype=torch.float32, normalizer=normalizer)
    check_decoding(layer, torch.float32, 2, 1e-5)


@every_pair
def test_a_prompt_padded_on_the_left(name, attention):
    """Rows of other length, padded on the left, then decoded: each as if it were alone."""
    layer = Layer(name, attention, causal=True)
    lengths, prompt, new = [5, 2, 4], 5, 3
    padding = torch.tensor([[s < prompt - n for s in range(prompt)] for n in lengths])
    x, y = tokens(3, prompt), tokens(3, new)
    positions = make_positions(padding, prompt)
    _, state = layer.step(x, positions, None, padding)
    outputs = []
    for s in range(new):
        positions = torch.tensor(lengths).unsqueeze(1) + s
        output, state = layer.step(y[:, s : s + 1], positions, state)
        outputs.append(output)
    decoded = torch.cat(outputs, 1)
    for b, n in enumerate(lengths):
        alone = torch.cat((x[b, prompt - n :], y[b])).unsqueeze(0)
        assert error(decoded[b], layer(alone, count(n + new))[0, n:]) <= 1e-9


@every_pair
def test_padding_in_the_middle_of_decoding(name, attention):
    """A row whose step is padding (a forced prefix of other length) is as if it had waited."""
    layer = Layer(name, attention, causal=True)
    x = tokens(2, 6)
    padded_at = 3
    state = None
    outputs = []
    for s in range(6):
        padding = torch.tensor([[s == padded_at], [False]])
        positions = torch.tensor([[s - (s > padded_at)], [s]])
        output, state = layer.step(x[:, s : s + 1], positions, state, padding)
        outputs.append(output)
    decoded = torch.cat(outputs, 1)
    kept = [s for s in range(6) if s != padded_at]
    assert error(decoded[0, kept], layer(x[:1, kept], count(5))[0]) <= 1e-9
    assert error(decoded[1], layer(x[1:], count(6))[0]) <= 1e-9


@every_pair
@pytest.mark.parametrize("padded", [None, "left", "right"])
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
    state = layer.remember(memory, memory_at, padding)
    early = torch.cat([layer.attend(x[:, s : s + 1], count(1, s), state) for s in range(3)], 1)
    assert error(early, whole[:, :3]) <= 1e-9
    state = reorder(state, order)
    x = x[order]
    late = torch.cat([layer.attend(x[:, s : s + 1], count(1, s), state) for s in range(3, 5)], 1)
    assert error(late, whole[order, 3:]) <= 1e-9


@every_pair
def test_a_state_is_tensors_with_the_batch_first(name, attention):
    layer = Layer(name, attention, causal=True)
    _, state = layer.step(tokens(3, 2), count(2), None)
    for tensor in state.values():
        assert tensor.size(0) == 3


@every_pair
def test_linear_decoding_has_a_state_of_one_size(name, attention):
    """The same at any context, and so is the work of a step; softmax keeps every key."""
    layer = Layer(name, attention, causal=True)
    sizes, state = [], None
    for s in range(20):
        _, state = layer.step(tokens(1, 1), count(1, s), state)
        sizes.append(sum(tensor.numel() for tensor in state.values()))
    if attention == "linear":
        encoded = layer.encoding.encoded_dim
        # The sums of k v^T, of k, and of the norms of k.
        assert set(sizes) == {HEADS * (encoded * DIM + encoded + 1)}
    else:
        grown = [later - earlier for earlier, later in itertools.pairwise(sizes)]
        assert min(grown) > 0
        assert len(set(grown)) == 1


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
