"""Biases computed by FlexAttention on a GPU (`make test-gpu`): the dense ones, and their memory."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention, flex
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels.backend import CAPABILITY, FLEX

pytestmark = pytest.mark.gpu(capability=CAPABILITY)

HEADS, DIM = 4, 64
BIASES = ("alibi", "t5", "kerple_power", "sandwich", "fire", "tupe", "tupe_relative")


@pytest.fixture(autouse=True)
def _by_choice(monkeypatch):
    monkeypatch.setenv(FLEX, "1")


def build(name: str, causal: bool):
    sizes = {"num_heads": HEADS, "head_dim": DIM, "causal": causal}
    encoding = build_encoding(name, max_positions=16384, **sizes)
    return build_attention("vanilla", encoding, **sizes).cuda()


def run(attention, length: int, dtype: torch.dtype, padded: Tensor | None) -> list[Tensor]:
    """The output, and the gradients of inputs and parameters."""
    torch.manual_seed(1)
    drawn = (torch.randn(2, HEADS, length, DIM, device="cuda") for _ in range(3))
    # Rounded for every dtype, so that all have the same inputs.
    leaves = [x.bfloat16().to(dtype).requires_grad_() for x in drawn]
    at = Positions.of(padded, length, torch.device("cuda")).index
    output, _ = attention(*leaves, q_positions=at, k_positions=at, key_padding_mask=padded)
    if padded is not None:
        output = output.masked_fill(padded[:, None, :, None], 0.0)
    # Softmax ignores a constant, so that the gradient of FIRE's last bias is 0.
    moved = [p for n, p in attention.named_parameters() if not n.endswith("second_bias")]
    gradients = torch.autograd.grad(output.float().square().sum(), [*leaves, *moved])
    return [output.detach(), *gradients]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", BIASES)
def test_a_bias_by_pairs_is_as_exact_as_the_dense_one(monkeypatch, name, causal, dtype):
    """In bfloat16, against the dense bias in float32, whose error in bfloat16 is the measure."""
    attention, length = build(name, causal), 300
    padded = torch.zeros(2, length, dtype=torch.bool, device="cuda")
    padded[1, 150:] = True
    calls = []
    kernel = flex.flex_softmax
    monkeypatch.setattr(flex, "flex_softmax", lambda *a, **o: calls.append(a) or kernel(*a, **o))
    actual = run(attention, length, dtype, padded)
    assert calls
    monkeypatch.delenv(FLEX)
    exact = run(attention, length, torch.float32, padded)
    dense = run(attention, length, dtype, padded)
    # Gradients of FIRE's network are sums over rows that nearly cancel, of rounded outputs.
    rounding = 4e-2 if name == "fire" else 1e-2
    floor = 1e-3 if dtype == torch.float32 else rounding
    for found, other, right in zip(actual, dense, exact, strict=True):
        error, usual = ((x.float() - right).abs().max() for x in (found, other))
        assert error <= 1.5 * usual + floor * right.abs().max()
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_memory_grows_with_the_length_alone(name):
    attention, peaks = build(name, True), []
    for length in (4096, 8192):
        run(attention, length, torch.bfloat16, None)  # compiles
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(attention, length, torch.bfloat16, None)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] <= 2.2 * peaks[0]
