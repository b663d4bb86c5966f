"""Terms that depend on the offset s - t: computed once per offset, then gathered for all pairs.

Shapes: B batch, H heads, T queries, S keys, N offsets.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import at_least_float32, relative_positions, widened
from fairseq_plugins.encodings.position_bounds import is_recorded, known_end
from fairseq_plugins.kernels.backend import apply_function

_QUERIES = 128  # of a block


def occurring_offsets(
    q_positions: Tensor, k_positions: Tensor, *, causal: bool, furthest: int
) -> tuple[Tensor, int, int]:
    """Return ``q_positions - k_positions`` (B or 1, T, S), and bounds of these offsets.

    With ``causal``, later keys, which are hidden, get offset 0: half of the offsets then need no
    column. The bounds follow from the bound attached to the positions (``with_end``). Without one
    they are computed, which waits for the device, or in a compiled graph follow from ``furthest``.
    """
    offsets = -relative_positions(q_positions, k_positions)
    if causal:
        offsets = offsets.clamp(min=0)
    if not offsets.numel():
        return offsets, 0, 0
    end = known_end(q_positions, k_positions)
    if end is None and not is_recorded(offsets):
        low, high = torch.stack(offsets.aminmax()).tolist()
        return offsets, low, high
    high = furthest if end is None else end - 1
    return offsets, 0 if causal else -high, high


def gather_offsets(per_offset: Tensor, offsets: Tensor, low: int) -> Tensor:
    """Return each pair's value from values per query and offset: (B, H, T, N) -> (B, H, T, S).

    Args:
        per_offset: (B, H, T, N), for the offsets ``low``, ``low + 1``, ...
        offsets: (B or 1, T, S), of every pair of a query and a key.
        low: the offset of the first column.
    """
    return gather_columns(per_offset, offsets - low)


def products_by_offset(x: Tensor, rows: Tensor, offsets: Tensor, low: int) -> Tensor:
    """Return ``x_s . rows[s - t]`` for every pair of a query and a key, (B, H, T, S).

    On a CPU this goes by blocks of 128 queries, for fewer unused products: T consecutive queries
    have T + S offsets, of which each query uses S. On a GPU the bounds of a block would cost a
    transfer from the device.

    Args:
        x: (B, H, T, D), one vector per query.
        rows: (H, N, D), for the offsets ``low``, ``low + 1``, ...
        offsets: (B or 1, T, S), ``s - t`` of every pair.
        low: the offset of the first row.
    """
    one_block = x.size(2) < 2 * _QUERIES or not offsets.numel() or x.device.type != "cpu"
    if one_block or torch.compiler.is_compiling():
        return gather_offsets(x @ rows.mT, offsets, low)
    blocks = []
    for queries, pairs in zip(x.split(_QUERIES, 2), offsets.split(_QUERIES, 1), strict=True):
        first, last = torch.stack(pairs.aminmax()).tolist()
        columns = queries @ rows[:, first - low : last - low + 1].mT
        blocks.append(gather_offsets(columns, pairs, first))
    return torch.cat(blocks, 2)


def gather_columns(columns: Tensor, index: Tensor) -> Tensor:
    """Return each pair's value by its column: (B, H, T, N), (B or 1, T, S) -> (B, H, T, S).

    Gradients of pairs with the same column are added in float32, see ``sum_columns``.
    """
    index = index.unsqueeze(1).expand(*columns.shape[:3], index.size(-1))
    if columns.dtype == at_least_float32(columns):
        return columns.gather(-1, index)
    gathered: Tensor = apply_function(_Gather, columns, index)
    return gathered


def sum_columns(pairs: Tensor, index: Tensor, count: int) -> Tensor:
    """Sum pairs per column, the adjoint of gathering: (B, H, T, S) -> (B, H, T, count).

    ``index`` is (B or 1, T, S). Sums are float32: a GPU rounds every addition to the tensor's
    dtype, and a bfloat16 sum of equal weights stops growing at 256 of them. With clipped offsets
    far more pairs share a column.
    """
    return _sum(pairs, index.unsqueeze(1).expand(pairs.shape), count)


def _sum(pairs: Tensor, index: Tensor, count: int) -> Tensor:
    sums = pairs.new_zeros(*pairs.shape[:-1], count, dtype=at_least_float32(pairs))
    return sums.scatter_add(-1, index, widened(pairs)).to(pairs.dtype)


class _Gather(torch.autograd.Function):
    """``columns.gather(-1, index)`` with the gradient of ``_sum``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(columns: Tensor, index: Tensor) -> Tensor:
        return columns.gather(-1, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        columns, index = inputs
        ctx.save_for_backward(index)
        ctx.count = columns.size(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _sum(grad, ctx.saved_tensors[0], ctx.count), None
