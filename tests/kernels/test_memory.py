"""Memory of causal linear attention, read from the allocator's own events."""

from collections.abc import Callable

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fairseq_plugins.attention import LinearAttention
from fairseq_plugins.encodings import ENCODINGS, build_encoding
from fairseq_plugins.encodings.base import LOGIT_HOOKS, TRANSFORM_HOOKS
from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention

LENGTH, HEADS = 8192, 4


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes that ``run`` holds at once beyond what was there before.

    The profiler records every allocation and release of torch's CPU allocator, those inside an
    operator too, so that nothing temporary is missed.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        kept = run()
    del kept
    assert records.profiler is not None
    results = records.profiler.kineto_results
    assert results is not None
    events = [e for e in results.events() if e.name() == "[memory]"]
    events = [e for e in events if e.device_type() == DeviceType.CPU]
    assert events, "the profiler recorded no allocation"
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


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


@pytest.mark.parametrize("dim", [32, 64])
def test_forward_and_backward_stay_within_12_times_the_input(dim):
    q, k, v = inputs(LENGTH, dim)
    peak = peak_bytes(lambda: causal_linear_attention(q, k, v).sum().backward())
    # The strictest reading: one of the three inputs. Their gradients are among what is counted.
    assert peak <= 12 * total_bytes([q])


@pytest.mark.parametrize(
    "name",
    [n for n, e in ENCODINGS.items() if e.hooks & TRANSFORM_HOOKS and not e.hooks & LOGIT_HOOKS],
)
def test_a_whole_attention_stays_within_12_times_its_input(name):
    """With feature map, encoding and denominator, for every encoding that acts inside."""
    encoding = build_encoding(name, num_heads=HEADS, head_dim=32, max_positions=LENGTH, causal=True)
    attention = LinearAttention(encoding, num_heads=HEADS, head_dim=32, causal=True)
    q, k, v = inputs(LENGTH, 32)
    positions = torch.arange(LENGTH).unsqueeze(0)

    def run() -> None:
        output, _ = attention(q, k, v, q_positions=positions, k_positions=positions)
        output.sum().backward()

    # Tables of positions are made once; they belong to the model, not to a pass.
    encoding.transform_key(k, positions)
    assert peak_bytes(run) <= 12 * total_bytes([q, k, v])
