"""Distances between the tokens that linear attention sums up, and lengths of its steps.

Shapes: B batch, T tokens.
"""

import torch
from torch import Tensor

from fairseq_plugins.encodings.position_bounds import known_end, with_end


def check_span(label: str, span: int, *positions: Tensor) -> None:
    """Refuse positions that are too far apart.

    Args:
        label: of the encoding, for the message.
        span: the distance from which on weights are negative.
        positions: (B or 1, T) each.

    Raises:
        ValueError: two of a sequence are ``span`` or more apart.
    """
    end = known_end(*positions)
    if end is not None and end <= span:
        return
    # Positions may lie close together far out, and below their end where padding counts in it.
    rows = max(p.size(0) for p in positions)
    at = torch.cat([p.expand(rows, -1) for p in positions], dim=1)
    apart = int((at.amax(1) - at.amin(1)).max()) if at.numel() else 0
    if apart >= span:
        raise ValueError(
            f"linear attention with {label} takes distances below {span}, beyond which weights "
            f"are negative, but `positions` are up to {apart} apart; build the model for more "
            "positions, or give the encoding a larger `length`."
        )


def key_range(positions: Tensor, batch: int, before: Tensor | None = None) -> Tensor:
    """Find the smallest and the largest position of each sequence, without waiting for a GPU.

    Args:
        positions: (B or 1, T).
        batch: B.
        before: the range of the tokens before, for which the end of ``positions`` speaks too.

    Returns:
        (B, 2), or (B, 0) where there is no token yet; with the end that ``positions`` have.
    """
    seen = positions.expand(batch, -1)
    if before is not None:
        seen = torch.cat((before, seen), dim=1)
    if seen.size(1):
        seen = torch.stack(torch.aminmax(seen, dim=1), dim=1)
    return with_end(seen, known_end(positions))


_NOWHERE = torch.iinfo(torch.int64).min  # reached by padding alone


def advances(
    positions: Tensor, padding: Tensor | None, last: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Count how many positions each token is beyond those before it, never negative.

    Args:
        positions: (B or 1, T).
        padding: (B, T), True where padded: such a token advances nothing.
        last: (B, 1), the position reached by the tokens before, ``_NOWHERE`` where they were all
            padded; None before the first. What the first of all advances does not count, since no
            sum is there to decay.

    Returns:
        (B or 1, T), and the position reached by the last token (B or 1, 1), both int64.
    """
    if padding is not None:
        positions = positions.masked_fill(padding, _NOWHERE)
    first = positions.new_full((len(positions), 1), _NOWHERE) if last is None else last
    rows = max(first.size(0), positions.size(0))
    reached = torch.cat((first.expand(rows, -1), positions.expand(rows, -1)), dim=1)
    reached = reached.cummax(dim=1).values
    return reached.diff(dim=1).where(reached[:, :-1] != _NOWHERE, 0), reached[:, -1:]
