"""Tables indexed by position: float32, outside the state dict, grown on demand."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.ends import end_of


class PositionTable(nn.Module):
    """Rows ``make(positions)`` for positions 0, 1, ..., kept and extended when a longer one comes.

    Args:
        make: float64 positions (N,) -> rows (N, ...). Evaluated in float64, kept in float32. A
            function of a module or a ``partial`` of one, which can be pickled with the table.
        size: rows to start with.
    """

    rows: Tensor

    def __init__(self, make: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self._make = make
        self.register_buffer("rows", self._build(size), persistent=False)

    def _build(self, size: int) -> Tensor:
        return self._make(torch.arange(size, dtype=torch.float64)).float()

    def reserve(self, size: int) -> None:
        """Have at least ``size`` rows."""
        if size > self.rows.size(0):
            # Doubling keeps the number of rebuilds logarithmic when decoding token by token.
            self._grow(max(size, 2 * self.rows.size(0)))

    @torch.compiler.disable(reason="a table of positions grows once for many passes")
    def _grow(self, size: int) -> None:
        rows = self._build(size)
        self.rows = rows.to(device=self.rows.device, dtype=self.rows.dtype)

    def forward(self, positions: Tensor) -> Tensor:
        """Rows at ``positions`` (any shape, int64): shape ``positions.shape + row shape``."""
        self.reserve(end_of(positions, self.rows.size(0)))
        return self.rows[positions]


def continued_rows(table: Tensor, fresh: Tensor) -> Tensor:
    """The rows that there are, and behind them those of a new table: (n, C), (m, C) -> (m, C).

    Where m is below n, the first m of n.
    """
    kept = min(len(table), len(fresh))
    return torch.cat((table[:kept].to(fresh), fresh[kept:]))


def interpolated_rows(table: Tensor, size: int) -> Tensor:
    """A table stretched to ``size`` rows, linearly between neighbours: (n, C) -> (size, C).

    The first and the last row stay so; row s is what was at s (n - 1) / (size - 1).
    """
    if len(table) == 1 or size == 1:
        return table[:1].expand(size, -1).clone()
    at = torch.linspace(0, len(table) - 1, size, dtype=torch.float64, device=table.device)
    lower = at.long().clamp(max=len(table) - 2)
    share = (at - lower).unsqueeze(-1).to(table.dtype)
    return torch.lerp(table[lower], table[lower + 1], share)


def check_within_table(positions: Tensor, size: int) -> None:
    """Refuse a position beyond a learned table, which has nothing to say about it.

    Raises:
        ValueError: for a position of ``size`` or more.
    """
    end = end_of(positions, size)
    if end > size:
        raise ValueError(
            f"`positions` must be below max_positions={size} of the learned table, but reach "
            f"{end - 1}; build it with a larger `max_positions` (in fairseq: train with a larger "
            "`max_target_positions`) or use an encoding that extrapolates."
        )
