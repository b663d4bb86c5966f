"""Matrix products accumulated in float32 or wider, of narrow operands where possible.

NVIDIA GPUs multiply float16 operands and accumulate in float32, on a V100 at eight times the rate
of float32 operands. A product of two float16 numbers is exact in float32, so that the result equals
that of widened operands up to the order of additions. Elsewhere, and for other types, operands are
widened first. PyTorch has no gradient of the mixed product: use it in autograd functions only.

Shapes: (N, I, J) times (N, J, K).
"""

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor, dtype: torch.dtype, *, out: Tensor | None = None) -> Tensor:
    """Compute a b in ``dtype``, optionally into ``out``."""
    if stay_narrow(a, b, dtype):
        return torch.bmm(a, b, out_dtype=dtype, out=out)
    return torch.bmm(a.to(dtype), b.to(dtype), out=out)


def add_product(total: Tensor, a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """Compute total + a b in the dtype of ``total`` into ``out``, which may be ``total``."""
    if stay_narrow(a, b, total.dtype):
        return torch.add(total, torch.bmm(a, b, out_dtype=total.dtype), out=out)
    return torch.baddbmm(total, a.to(total.dtype), b.to(total.dtype), out=out)


def stay_narrow(a: Tensor, b: Tensor, dtype: torch.dtype) -> bool:
    """Return whether the device multiplies these without a cast and accumulates in ``dtype``."""
    return (
        a.is_cuda
        and torch.version.hip is None
        and a.dtype == b.dtype == torch.float16
        and dtype == torch.float32
    )


def matrix_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply (I, J) and (J, K) in ``dtype``; on a GPU bfloat16 is not widened either.

    For matrices as large as an output layer, where widening would take most of the time.
    """
    half = a.dtype == b.dtype == torch.bfloat16 and dtype == torch.float32
    if stay_narrow(a, b, dtype) or (half and a.is_cuda):
        return torch.mm(a, b, out_dtype=dtype)
    return torch.mm(a.to(dtype), b.to(dtype))
