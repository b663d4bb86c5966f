"""Tables indexed by position: float32, outside the state dict, grown on demand."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class PositionTable(nn.Module):
    """Rows ``make(positions)`` for positions 0, 1, ..., kept and extended when a longer one comes.

    Args:
        make: float64 positions (N,) -> rows (N, ...). Evaluated in float64, kept in float32.
        size: rows to start with.
    """

    rows: Tensor

    def __init__(self, make: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self._make = make
        self.register_buffer("rows", self._build(size), persistent=False)

    def _build(self, size: int) -> Tensor:
        return self._make(torch.arange(size, dtype=torch.float64)).float()

    def forward(self, positions: Tensor) -> Tensor:
        """Rows at ``positions`` (any shape, int64): shape ``positions.shape + row shape``."""
        longest = int(positions.max()) + 1 if positions.numel() else 0
        if longest > self.rows.size(0):
            # Doubling keeps the number of rebuilds logarithmic when decoding token by token.
            rows = self._build(max(longest, 2 * self.rows.size(0)))
            self.rows = rows.to(device=self.rows.device, dtype=self.rows.dtype)
        return self.rows[positions]
