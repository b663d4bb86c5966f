"""Positions of tokens, from the padding mask and the decoding step, made once per pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings.position_bounds import with_end


def make_positions(
    padding_mask: Tensor | None,
    length: int,
    *,
    offset: Tensor | int = 0,
    device: torch.device | None = None,
) -> Tensor:
    """0-based positions that do not count padding, on whichever side it is.

    Args:
        padding_mask: (B, T) bool, True where padded; None where nothing is.
        length: T, used where there is no mask.
        offset: tokens before the first, an integer or (B, 1) int64.
        device: of the result, used where there is no mask.

    Returns:
        (B, T) int64, or (1, T) where neither mask nor offset differ within the batch. Padding
        before the first token has its position.

    Raises:
        ValueError: a mask that is not bool, or of another length.
    """
    if padding_mask is None:
        return torch.arange(length, device=device).unsqueeze(0) + offset
    check_padding_mask("padding_mask", padding_mask, length)
    counts = (~padding_mask).long().cumsum(1) - 1
    return counts.clamp(min=0) + offset


def check_padding_mask(name: str, mask: Tensor, length: int) -> None:
    """Refuse a mask whose meaning is not plain, as of ones at the tokens that count.

    Raises:
        ValueError: it is not bool, or not (B, ``length``).
    """
    if mask.dtype != torch.bool:
        raise ValueError(f"`{name}` must be bool, True where padded, but is {mask.dtype} instead.")
    if mask.dim() != 2 or mask.size(1) != length:
        raise ValueError(f"`{name}` must be (B, {length}), but is {tuple(mask.shape)} instead.")


def check_positions(name: str, positions: Tensor, batch: int, length: int) -> None:
    """Refuse positions that are no integers, or not those of the tokens.

    Raises:
        ValueError: they are not int64, or not (``batch`` or 1, ``length``).
    """
    if positions.dtype != torch.int64:
        raise ValueError(f"`{name}` must be int64, but is {positions.dtype} instead.")
    if torch.compiler.is_compiling():
        return  # A comparison would bind the sizes of the graph.
    rows = positions.size(0) if positions.dim() == 2 else 0
    if rows not in (1, batch) or positions.size(1) != length:
        raise ValueError(
            f"`{name}` must be (B or 1, {length}) with B={batch}, but is "
            f"{tuple(positions.shape)} instead."
        )


@dataclass(frozen=True, eq=False)
class Positions:
    """Where the tokens of one pass are, made once and handed down to every attention.

    Attributes:
        index: (B or 1, T) int64, which says its end to the encodings that it is given to.
        end: all positions are below it; a number that the host knows without asking a GPU. In a
            decoding step, those of all steps before are, too.
        padding_mask: (B, T) bool, True where padded; None where nothing is.
        shared: what the self-attentions of these tokens have in common.
        content: (T, B, C), what keys and values are made of where queries alone go on; None where
            all three come from what a layer is given.
    """

    index: Tensor
    end: int
    padding_mask: Tensor | None
    shared: SharedPass
    content: Tensor | None = None

    def __post_init__(self) -> None:
        with_end(self.index, self.end)

    @classmethod
    def of(
        cls, padding_mask: Tensor | None, length: int, device: torch.device | None = None
    ) -> "Positions":
        """Those of whole sequences; see ``make_positions``."""
        index = make_positions(padding_mask, length, device=device)
        return cls(index, length, padding_mask, SharedPass())

    def last(self, batch: int) -> "Positions":
        """Those of the last token alone, the next one of a decoding: (B, 1).

        Args:
            batch: sequences, each of which has a row as in the states of attentions.
        """
        padding = None if self.padding_mask is None else self.padding_mask[:, -1:]
        index = self.index[:, -1:].expand(batch, -1)
        return Positions(index, self.end, padding, SharedPass())


@dataclass(frozen=True, eq=False)
class CrossPositions:
    """Where the tokens are of one sequence that attends to another.

    Attributes:
        queries: of the one.
        keys: of the other.
        shared: what the attentions of the one to the other have in common.
    """

    queries: Positions
    keys: Positions
    shared: SharedPass

    @classmethod
    def of(cls, queries: Positions, keys: Positions) -> "CrossPositions":
        """Those of a new pass."""
        return cls(queries, keys, SharedPass())
