"""Sums over waves and features of ``x_d wave_kd mixing_kdr``, for sineSPE.

Shapes: B batch, H heads, T tokens, D head_dim, W waves per feature, R realisations.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fairseq_plugins.kernels.backend import needs_plain_operations
from fairseq_plugins.kernels.derivatives import first_derivative

_TOKENS = 32  # per block, whose products fit in the cache


def wave_products(x: Tensor, waves: Tensor, mixing: Tensor) -> Tensor:
    """Compute ``sum_kd x_td wave_tkd mixing_kdr``: (B, H, T, D) -> (B, H, T, R).

    On a CPU it loops over blocks of tokens whose products fit in the cache, forward and backward,
    and has first derivatives only. Elsewhere a few large operations are faster.

    Args:
        x: (B, H, T, D).
        waves: (B or 1, H, T, W, D).
        mixing: (H, W D, R).
    """
    plain = x.device.type != "cpu" or torch.is_autocast_enabled("cpu")
    if plain or needs_plain_operations() or not x.numel():
        return (x.unsqueeze(-2) * waves).flatten(-2) @ mixing
    result: Tensor = _WaveProducts.apply(x, waves, mixing)
    return result


class _WaveProducts(torch.autograd.Function):
    """The sums by blocks of tokens, with one matrix product per head for all rows and tokens."""

    @staticmethod
    def forward(ctx, x: Tensor, waves: Tensor, mixing: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, waves, mixing)
        result = x.new_empty(*x.shape[:3], mixing.size(-1))
        scratch = _Scratch(x, waves, 1)
        for x_block, waves_block, out in _blocks(x, waves, result):
            (products,) = scratch.of(x_block)
            torch.mul(x_block.unsqueeze(-2), waves_block, out=products)
            out.copy_((_by_head(products) @ mixing).view(out.shape))
        return result

    @staticmethod
    @first_derivative
    def backward(  # type: ignore[no-untyped-def]
        ctx, saved: tuple[Tensor, ...], grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, waves, mixing = saved
        to_x, to_waves = torch.empty_like(x), torch.empty_like(waves)
        to_mixing = torch.zeros_like(mixing)
        transposed = mixing.mT.contiguous()
        scratch = _Scratch(x, waves, 2)
        for x_block, waves_block, grad_block, x_out, waves_out in _blocks(
            x, waves, grad, to_x, to_waves
        ):
            products, inner = scratch.of(x_block)
            by_row = x_block.unsqueeze(-2)
            rows = grad_block.flatten(1, 2)
            torch.mul(by_row, waves_block, out=products)
            to_mixing.baddbmm_(_by_head(products).mT, rows)
            torch.bmm(rows, transposed, out=_by_head(inner))
            _sum_products(inner.unbind(-2), waves_block.unbind(-2), x_out)
            if waves.size(0) == x.size(0):
                torch.mul(inner, by_row, out=waves_out)
            else:
                _sum_products(inner.unbind(1), by_row.unbind(1), waves_out[:, 0])
        return to_x, to_waves, to_mixing


class _Scratch:
    """Reused memory for the products (H, B, tokens, W, D) of one block."""

    def __init__(self, x: Tensor, waves: Tensor, count: int) -> None:
        batch, heads, length, dim = x.shape
        per_token = heads * batch * waves.size(-2) * dim
        self._memory = [x.new_empty(min(length, _TOKENS) * per_token) for _ in range(count)]
        self._shape = waves.size(-2), dim

    def of(self, block: Tensor) -> list[Tensor]:
        """Return the tensors for a block (H, B, tokens, D)."""
        shape = *block.shape[:3], *self._shape
        size = block.numel() * self._shape[0]
        return [memory[:size].view(shape) for memory in self._memory]


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split into blocks of tokens, heads first: (B, H, T, ...) -> (H, B, up to 32, ...)."""
    blocks = (tensor.transpose(0, 1).split(_TOKENS, 2) for tensor in tensors)
    return zip(*blocks, strict=True)


def _by_head(products: Tensor) -> Tensor:
    """View (H, B, T, W, D) as (H, B T, W D)."""
    return products.view(products.size(0), -1, products.size(-2) * products.size(-1))


def _sum_products(left: Sequence[Tensor], right: Sequence[Tensor], out: Tensor) -> None:
    """Write the sum of pairwise products to ``out``."""
    torch.mul(left[0], right[0], out=out)
    for one, other in zip(left[1:], right[1:], strict=True):
        out.addcmul_(one, other)
