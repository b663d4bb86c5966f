"""float16 operands on a GPU without Triton's kernel, as on a V100, shown without a GPU.

A machine without one can propagate shapes and types of a product on a GPU, and can stand in for
the one kind that a CPU lacks: float16 times float16 in float32.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.kernels import causal_linear_attention, chunked, operands
from fairseq_plugins.kernels.backend import VARIABLE

HALF, WIDE = torch.float16, torch.float32
MIXED = {torch.ops.aten.bmm.dtype, torch.ops.aten.bmm.dtype_out}
CHUNKS, CHUNK = 3, 16


class Mixed(TorchDispatchMode):
    """Counts products of float16 in another type; with ``stands_in`` it computes them."""

    def __init__(self, *, stands_in: bool = False) -> None:
        super().__init__()
        self.stands_in, self.count = stands_in, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in MIXED:
            return func(*args, **(kwargs or {}))
        a, b, dtype = args
        assert (a.dtype, b.dtype, dtype) == (HALF, HALF, WIDE)
        self.count += 1
        if self.stands_in:
            return torch.bmm(a.to(dtype), b.to(dtype), **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _chunks_on_nvidia(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    monkeypatch.setattr(torch.version, "hip", None)


@pytest.mark.parametrize(("dtype", "count"), [(HALF, 3), (torch.bfloat16, 0), (WIDE, 0)], ids=str)
def test_on_a_gpu_float16_operands_stay_so(dtype, count):
    with FakeTensorMode(), Mixed() as mixed:
        a, b = (torch.empty(2, *s, dtype=dtype, device="cuda") for s in ((4, 8), (8, 5)))
        total = torch.empty(2, 4, 5, device="cuda")
        results = [
            operands.product(a, b, WIDE),
            operands.product(a, b, WIDE, out=total),
            operands.add_product(total, a, b, out=total),
        ]
    assert mixed.count == count
    for result in results:
        assert (result.device.type, result.dtype, result.shape) == ("cuda", WIDE, (2, 4, 5))


def attend(size: float) -> list[Tensor]:
    """The output and its gradients, for positive float16 inputs up to ``size``."""
    torch.manual_seed(1)
    shape = (2, 3, CHUNKS * CHUNK, 8)
    tensors = [(torch.rand(shape) * size).to(HALF).requires_grad_() for _ in range(3)]
    output = causal_linear_attention(*tensors, min_cosine=0.2, chunk_size=CHUNK)
    assert isinstance(output, Tensor)
    return [output, *torch.autograd.grad(output, tensors, torch.randn(shape).to(HALF))]


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_the_result_is_that_of_widened_operands(monkeypatch, size):
    with Mixed() as mixed:
        expected = attend(size)
    assert mixed.count == 0

    def stay_narrow(a: Tensor, b: Tensor, dtype: torch.dtype) -> bool:
        return a.dtype == b.dtype == HALF and dtype == WIDE

    for module in (operands, chunked):
        monkeypatch.setattr(module, "stay_narrow", stay_narrow)
    with Mixed(stands_in=True) as mixed:
        actual = attend(size)
    # Weights and what a chunk adds to the state; in backward the same, without the last sum.
    assert mixed.count == 4 * CHUNKS - 1
    for one, other in zip(actual, expected, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)
