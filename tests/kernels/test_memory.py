"""Memory of causal linear attention, read from the allocator's own events."""

import gc

import pytest
import torch

from benchmarks.timing import peak_bytes
from fairseq_plugins.attention import LinearAttention
from fairseq_plugins.encodings import ENCODINGS, Stochastic, build_encoding
from fairseq_plugins.encodings.base import LOGIT_HOOKS, TRANSFORM_HOOKS
from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention

LENGTH, HEADS = 8192, 4


def inputs(length: int, dim: int) -> list[torch.Tensor]:
    return [torch.rand(1, HEADS, length, dim).requires_grad_() for _ in range(3)]


def total_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def test_the_measure_sees_what_is_allocated():
    """Against known amounts: one buffer kept, one temporary, and the quadratic reference."""
    megabyte = 2**20
    assert peak_bytes(lambda: torch.ones(megabyte)) >= 4 * megabyte
    x = torch.ones(megabyte)
    assert 8 * megabyte <= peak_bytes(lambda: (x + 1).mul(2).sum()) < 9 * megabyte
    q, k, v = inputs(1024, 16)
    weights = HEADS * 1024 * 1024 * 4
    assert peak_bytes(lambda: naive_linear_attention(q, k, v, causal=True)) >= 2 * weights


def test_what_an_earlier_measurement_left_behind_is_not_subtracted():
    megabyte = 2**20

    def leave_a_cycle() -> None:
        cycle = [torch.ones(megabyte)]
        cycle.append(cycle)

    gc.disable()
    try:
        peak_bytes(leave_a_cycle)
        assert peak_bytes(lambda: (gc.collect(), torch.ones(megabyte))) >= 4 * megabyte
    finally:
        gc.enable()


@pytest.mark.parametrize("dim", [32, 64])
@pytest.mark.parametrize("decays", [False, True])
def test_forward_and_backward_stay_within_12_times_the_input(dim, decays):
    q, k, v = inputs(LENGTH, dim)
    options = {"log_decay": torch.full((1, HEADS, LENGTH), -0.1)} if decays else {}
    peak = peak_bytes(lambda: causal_linear_attention(q, k, v, **options).sum().backward())
    # The strictest reading: one of the three inputs. Their gradients are among what is counted.
    assert peak <= 12 * total_bytes([q])


INSIDE = [
    n for n, e in ENCODINGS.items() if e.hooks & TRANSFORM_HOOKS and not e.hooks & LOGIT_HOOKS
]
DRAWN = [n for n in INSIDE if any(issubclass(c, Stochastic) for c in ENCODINGS[n].classes)]


def peak_of_an_attention(name: str, length: int) -> tuple[int, int]:
    """Bytes beyond the inputs of a pass with its gradient, and bytes of the inputs."""
    encoding = build_encoding(name, num_heads=HEADS, head_dim=32, max_positions=length, causal=True)
    attention = LinearAttention(encoding, num_heads=HEADS, head_dim=32, causal=True)
    q, k, v = inputs(length, 32)
    positions = torch.arange(length).unsqueeze(0)

    def run() -> None:
        output, _ = attention(q, k, v, q_positions=positions, k_positions=positions)
        output.sum().backward()

    # Tables of positions are made once; they belong to the model, not to a pass.
    encoding.transform_key(k[:, :, -1:], positions[:, -1:])
    return peak_bytes(run), total_bytes([q, k, v])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if i % 2 else [])
        for i, name in enumerate(n for n in INSIDE if n not in DRAWN)
    ],
)
def test_a_whole_attention_stays_within_12_times_its_input(name):
    """With feature map, encoding and denominator, for every encoding that acts inside."""
    peak, given = peak_of_an_attention(name, LENGTH)
    assert peak <= 12 * given


@pytest.mark.parametrize("name", DRAWN)
def test_codes_that_are_drawn_grow_with_the_length_only(name):
    """There is a code for every position, feature and realisation, so 12 times is out of reach."""
    short, _ = peak_of_an_attention(name, LENGTH // 32)
    long, _ = peak_of_an_attention(name, LENGTH // 8)
    assert long <= 4.1 * short
