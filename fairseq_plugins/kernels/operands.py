"""Matrix products that are added up in float32 or wider, of operands no wider than they need be.

float16 operands stay what they are on NVIDIA GPUs, whose matrix units multiply them and add up in
float32: on a V100 at eight times the rate of float32 operands. The product of two is exact in
float32, so that the result is that of widened operands but for the order of additions. Elsewhere,
and for other types, operands are widened first. For autograd functions alone: PyTorch has no
gradient of the mixed product.

Shapes: (N, I, J) times (N, J, K).
"""

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor, dtype: torch.dtype, *, out: Tensor | None = None) -> Tensor:
    """a b in ``dtype``, into ``out`` where that is given."""
    if stay_narrow(a, b, dtype):
        return torch.bmm(a, b, out_dtype=dtype, out=out)
    return torch.bmm(a.to(dtype), b.to(dtype), out=out)


def add_product(total: Tensor, a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """total + a b in the dtype of ``total``, into ``out``, which may be ``total``."""
    if stay_narrow(a, b, total.dtype):
        return torch.add(total, torch.bmm(a, b, out_dtype=total.dtype), out=out)
    return torch.baddbmm(total, a.to(total.dtype), b.to(total.dtype), out=out)


def stay_narrow(a: Tensor, b: Tensor, dtype: torch.dtype) -> bool:
    """Whether the device multiplies these as they are and adds up in ``dtype``."""
    return (
        a.is_cuda
        and torch.version.hip is None
        and a.dtype == b.dtype == torch.float16
        and dtype == torch.float32
    )


def matrix_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """(I, J) times (J, K) in ``dtype``; on a GPU bfloat16 operands stay what they are too.

    What is multiplied here is as large as an output layer, where widened operands would be most
    of the time.
    """
    half = a.dtype == b.dtype == torch.bfloat16 and dtype == torch.float32
    if stay_narrow(a, b, dtype) or (half and a.is_cuda):
        return torch.mm(a, b, out_dtype=dtype)
    return torch.mm(a.to(dtype), b.to(dtype))
