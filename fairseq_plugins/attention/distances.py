"""Distances between tokens for linear attention: limits, ranges of keys and steps of decays.

Shapes: B batch, T tokens.
"""

import torch
from torch import Tensor

from fairseq_plugins.encodings.position_bounds import known_end, with_end_of


def check_span(label: str, span: int, *positions: Tensor) -> None:
    """Check that positions are less than ``span`` apart.

    Args:
        label: name of the encoding, for the message.
        span: the distance from which on weights are negative.
        positions: (B or 1, T) each.

    Raises:
        ValueError: two of a sequence are ``span`` or more apart.
    """
    end = known_end(*positions)
    if end is not None and end <= span:
        return
    # A bound is not enough: positions may be large but close together.
    rows = max(p.size(0) for p in positions)
    at = torch.cat([p.expand(rows, -1) for p in positions], dim=1)
    apart = int((at.amax(1) - at.amin(1)).max()) if at.numel() else 0
    if apart >= span:
        raise ValueError(
            f"`positions` must be less than {span} apart in linear attention with {label}, whose "
            f"weights are negative from there on, but are up to {apart} apart; build the model for "
            "more positions, or give the encoding a larger `length`."
        )


def key_range(positions: Tensor, batch: int, before: Tensor | None = None) -> Tensor:
    """Return the smallest and largest position of each sequence, without waiting for a GPU.

    Args:
        positions: (B or 1, T).
        batch: B.
        before: the range of earlier tokens, for which the bound of ``positions`` holds too.

    Returns:
        (B, 2), or (B, 0) if there is no token yet; with the bound of ``positions``.
    """
    seen = positions.expand(batch, -1)
    if before is not None:
        seen = torch.cat((before, seen), dim=1)
    if seen.size(1):
        seen = torch.stack(torch.aminmax(seen, dim=1), dim=1)
    return with_end_of(seen, positions)


_NO_TOKEN = torch.iinfo(torch.int64).min  # the last position if all tokens so far are padding


def advances(
    positions: Tensor, padding: Tensor | None, last: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return how far each token's position is beyond all earlier ones, at least 0.

    Args:
        positions: (B or 1, T).
        padding: (B, T), True where padded: padding advances by 0.
        last: (B, 1), the largest position of earlier tokens, ``_NO_TOKEN`` where all are padding;
            None before the first token. The first token advances by 0, since no sum can decay yet.

    Returns:
        (B or 1, T), and the largest position after the last token (B or 1, 1), both int64.
    """
    if padding is not None:
        positions = positions.masked_fill(padding, _NO_TOKEN)
    first = positions.new_full((len(positions), 1), _NO_TOKEN) if last is None else last
    rows = max(first.size(0), positions.size(0))
    reached = torch.cat((first.expand(rows, -1), positions.expand(rows, -1)), dim=1)
    reached = reached.cummax(dim=1).values
    return reached.diff(dim=1).where(reached[:, :-1] != _NO_TOKEN, 0), reached[:, -1:]
