"""Positions that say where they end, so that no table has to ask a GPU for the largest."""

import torch
from torch import Tensor

# An attribute of a tensor of positions: all of them are below it. A subclass of Tensor that has
# it as a field would say the same, but AOTAutograd cannot trace one.
_END = "_end"


def with_end(positions: Tensor, end: int | None) -> Tensor:
    """The same tensor, which now says that all positions in it are below ``end``.

    What is made of it, a slice or a sum, says nothing of its own. Where ``end`` is None, neither
    does the tensor itself.
    """
    if end is not None:
        setattr(positions, _END, end)
    return positions


def known_end(*positions: Tensor) -> int | None:
    """What all these positions are below, as far as they say it themselves; else None."""
    ends: list[int | None] = [getattr(tensor, _END, None) for tensor in positions]
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def end_of(positions: Tensor, enough: int) -> int:
    """A number that ``positions`` (any shape, int64) are below, above ``enough`` only if needed.

    The one that they say themselves while that is at most ``enough``, else exactly the largest
    position plus 1, which costs a wait. A compiled graph cannot wait: there what they say always
    counts, and where they say nothing they are asserted, on their device, to be below ``enough``.

    Raises:
        RuntimeError: in a compiled graph, for positions from ``enough`` on that say no end.
    """
    end, is_compiling = known_end(positions), torch.compiler.is_compiling()
    if end is not None and (end <= enough or is_compiling):
        return end
    if not is_compiling:
        return int(positions.max()) + 1 if positions.numel() else 0
    torch._assert_async(
        (positions < enough).all(),
        f"`positions` must be below {enough} in a compiled graph, whose tables cannot grow; give "
        "a larger `max_positions`, or run once uncompiled with the longest sequence.",
    )
    return enough
