"""Base class of encodings with a table row per clipped offset."""

from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, relative_positions
from fairseq_plugins.encodings.checks import check_at_least


class ClippedOffsets(PositionEncoding):
    """An encoding with 2 max_distance + 1 rows, one per clipped offset t - s (LRPE, Eq. 32).

    Args:
        max_distance: offsets are clipped to -max_distance..max_distance.

    Raises:
        ValueError: for a ``max_distance`` below 1.
    """

    shared_across_layers = True

    def __init__(self, context: EncodingContext, *, max_distance: int = 64) -> None:
        super().__init__(context)
        check_at_least(1, "max_distance", max_distance)
        self.max_distance = max_distance

    def index(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return the table's row of each pair: (B or 1, T), (B or 1, S) -> (B or 1, T, S) int64."""
        return self.row_of(relative_positions(q_positions, k_positions))

    def row_of(self, offsets: Tensor) -> Tensor:
        """Return the table's row of each offset ``k_position - q_position`` (any shape, int64)."""
        return offsets.clamp(-self.max_distance, self.max_distance) + self.max_distance
