"""Terms that depend on the offset s - t: what occurs, and from one column per offset to pairs.

Shapes: B batch, H heads, T queries, S keys, N offsets.
"""

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import relative_positions
from fairseq_plugins.encodings.reach import promised_end


def occurring_offsets(
    q_positions: Tensor, k_positions: Tensor, *, causal: bool, furthest: int
) -> tuple[Tensor, int, int]:
    """``q_positions - k_positions`` (B or 1, T, S), and the smallest and largest of them.

    Where ``causal``, later keys count as at the query's own position: they are hidden, and
    without them half of the offsets need no column. The bounds size tensors, so they cost one
    transfer from the device, unless the end of the positions is promised: then they are those of
    all positions before it. A compiled graph without a promise has them at ``furthest``.
    """
    offsets = -relative_positions(q_positions, k_positions)
    if causal:
        offsets = offsets.clamp(min=0)
    if not offsets.numel():
        return offsets, 0, 0
    end = promised_end()
    if end is None and not torch.compiler.is_compiling():
        low, high = torch.stack(offsets.aminmax()).tolist()
        return offsets, low, high
    high = furthest if end is None else end - 1
    return offsets, 0 if causal else -high, high


def gather_offsets(per_offset: Tensor, offsets: Tensor, low: int) -> Tensor:
    """Columns for ``low``, ``low + 1``, ...: (B, H, T, N), (B or 1, T, S) -> (B, H, T, S)."""
    index = (offsets - low).unsqueeze(1)
    return per_offset.gather(-1, index.expand(*per_offset.shape[:3], offsets.size(-1)))
