"""Positions of tokens, computed once per pass from the padding mask and the decoding step."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings.position_bounds import with_end, with_end_of


def make_positions(
    padding_mask: Tensor | None,
    length: int,
    *,
    offset: Tensor | int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """Count positions from 0, skipping padding on either side.

    Args:
        padding_mask: (B, T) bool, True where padded; None for no padding.
        length: T, used without a mask.
        offset: number of earlier tokens, an integer or (B, 1) int64.
        device: of the result, used without a mask.

    Returns:
        (B, T) int64, or (1, T) if rows have the same mask and offset. Padding before the first
        token has the position of that token.

    Raises:
        ValueError: a mask that is not bool, or of another length.
    """
    if padding_mask is None:
        return torch.arange(length, device=device).unsqueeze(0) + offset
    check_padding_mask("padding_mask", padding_mask, length)
    counts = (~padding_mask).long().cumsum(1) - 1
    return counts.clamp(min=0) + offset


def count_positions(
    padding_mask: Tensor | None, length: int, device: torch.device | None = None
) -> Tensor:
    """Count positions of whole sequences, with their length attached as bound (``with_end``)."""
    return with_end(make_positions(padding_mask, length, device=device), length)


def check_padding_mask(name: str, mask: Tensor, length: int) -> None:
    """Check the type and length of a padding mask; one with 1 at tokens would be inverted.

    Raises:
        ValueError: it is not bool, or not (B, ``length``).
    """
    if mask.dtype != torch.bool:
        raise ValueError(f"`{name}` must be bool, True where padded, but is {mask.dtype} instead.")
    if mask.dim() != 2 or mask.size(1) != length:
        raise ValueError(f"`{name}` must be (B, {length}), but is {tuple(mask.shape)} instead.")


def check_positions(name: str, positions: Tensor, batch: int, length: int) -> None:
    """Check the dtype and shape of positions.

    Raises:
        ValueError: they are not int64, or not (``batch`` or 1, ``length``).
    """
    if positions.dtype != torch.int64:
        raise ValueError(f"`{name}` must be int64, but is {positions.dtype} instead.")
    if torch.compiler.is_compiling():
        return  # Comparing sizes would fix them in the graph.
    rows = positions.size(0) if positions.dim() == 2 else 0
    if rows not in (1, batch) or positions.size(1) != length:
        raise ValueError(
            f"`{name}` must be (B or 1, {length}) with B={batch}, but is "
            f"{tuple(positions.shape)} instead."
        )


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions of the tokens of one pass, computed once and passed to every attention."""

    # (B or 1, T) int64, with an upper bound attached (``with_end``), which holds for earlier
    # decoding steps too.
    index: Tensor
    padding_mask: Tensor | None  # (B, T) bool, True where padded; None for no padding
    shared: SharedPass  # cache of values that all layers' attentions at these positions share
    content: Tensor | None = None  # (T, B, C), input of keys and values if not that of queries
    memory: "Positions | None" = None  # of the fixed keys in cross-attention; else None

    @classmethod
    def of(
        cls, padding_mask: Tensor | None, length: int, device: torch.device | None = None
    ) -> "Positions":
        """Count positions of whole sequences; see ``make_positions``."""
        return cls(count_positions(padding_mask, length, device), padding_mask, SharedPass())

    @property
    def keys(self) -> "Positions":
        """Positions of the keys: in self-attention these."""
        return self if self.memory is None else self.memory

    def across(self, memory: "Positions") -> "Positions":
        """Return these positions for cross-attention to fixed keys, with an empty cache."""
        return replace(self, memory=memory, shared=SharedPass())

    def last(self, batch: int) -> "Positions":
        """Return the positions (B, 1) of the last token, for a decoding step.

        Args:
            batch: B.
        """
        padding = None if self.padding_mask is None else self.padding_mask[:, -1:]
        index = with_end_of(self.index[:, -1:].expand(batch, -1), self.index)
        return Positions(index, padding, SharedPass())
