"""How exact the kernel is at length, and at inputs of any size."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention.normalizers import MIN_COSINE
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention

DIM = 32


def inputs(length: int, encoded: bool, size: float = 1.0) -> list[Tensor]:
    """Positive features, turned by RoPE where ``encoded``, and values: float64."""
    q, k, v = torch.rand(3, 1, 1, length, DIM, dtype=torch.float64) * size
    if encoded:
        rope = build_encoding("rope", num_heads=1, head_dim=DIM, max_positions=length)
        at = torch.arange(length).unsqueeze(0)
        q, k = rope.transform_query(q, at), rope.transform_key(k, at)
    return [q, k, v - size / 2]


def with_gradients(attend, tensors: list[Tensor], weights: Tensor, **options) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    output = attend(*leaves, **options)
    return [output.detach(), *torch.autograd.grad(output, leaves, weights.to(output.dtype))]


@pytest.mark.parametrize("length", [1024, pytest.param(8192, marks=pytest.mark.slow)])
@pytest.mark.parametrize("encoded", [False, True])
def test_many_tokens_in_every_precision(encoded, length):
    """Outputs and gradients, in units of the largest of each."""
    tensors = inputs(length, encoded)
    weights = torch.randn(1, 1, length, DIM, dtype=torch.float64)
    min_cosine = MIN_COSINE if encoded else 0.0
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)):
        rounded = [tensor.to(dtype) for tensor in tensors]
        given = [tensor.double() for tensor in rounded]
        expected = with_gradients(
            naive_linear_attention, given, weights.to(dtype), min_cosine=min_cosine, causal=True
        )
        actual = with_gradients(
            causal_linear_attention, rounded, weights.to(dtype), min_cosine=min_cosine
        )
        for name, one, other in zip(("output", "q", "k", "v"), actual, expected, strict=True):
            error = (one.double() - other).abs().max() / other.abs().max()
            assert error <= tolerance, (dtype, name, float(error))


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0, 1e2, 1e4])
def test_inputs_of_any_size_stay_finite(size, dtype, encoded):
    tensors = [tensor.to(dtype) for tensor in inputs(300, encoded, size)]
    weights = torch.randn(1, 1, 300, DIM).to(dtype)
    min_cosine = MIN_COSINE if encoded else 0.0
    results = with_gradients(causal_linear_attention, tensors, weights, min_cosine=min_cosine)
    assert all(result.isfinite().all() for result in results)
