"""Positions that say where they end, so that nobody has to ask a GPU for the largest."""

import torch
from torch import Tensor

# An attribute of a tensor of positions: all of them are in 0..end - 1. A subclass of Tensor that
# has it as a field would say the same, but AOTAutograd cannot trace one.
_END = "_end"


def with_end(positions: Tensor, end: int | None) -> Tensor:
    """The same tensor, which now says that all positions in it are in 0..``end`` - 1.

    What is made of it, a slice or a sum, says nothing of its own. Where ``end`` is None, neither
    does the tensor itself.
    """
    if end is not None:
        setattr(positions, _END, end)
    return positions


def known_end(*positions: Tensor) -> int | None:
    """Find the bound that all these positions are below, if they carry one; else None.

    Those that say it are not negative.
    """
    ends: list[int | None] = [getattr(tensor, _END, None) for tensor in positions]
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def is_recorded(x: Tensor) -> bool:
    """Tell whether operations on ``x`` are only recorded, so that its values are unknown.

    So it is in a compiled or exported graph, with fake and meta tensors, and in the capture of a
    CUDA graph.
    """
    if torch.compiler.is_compiling():
        return True
    if type(x) not in (Tensor, torch.nn.Parameter) or x.is_meta:
        return True
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def bounds_of(positions: Tensor) -> tuple[int, int]:
    """The least position, and what all are below; 0 and what they say themselves where they do.

    Positions that say nothing cost a wait for their device.
    """
    end = known_end(positions)
    if end is not None:
        return 0, end
    if not positions.numel():
        return 0, 0
    low, high = torch.stack(positions.aminmax()).tolist()
    return low, high + 1


def end_of(label: str, positions: Tensor, enough: int) -> int:
    """A number that ``positions`` (any shape, int64) are below, above ``enough`` only if needed.

    The one that they say themselves while that is at most ``enough``, else exactly the largest
    position plus 1, which costs a wait. A compiled graph cannot wait: there what they say always
    counts, and where they say nothing they are asserted, on their device, to be in 0..``enough``
    - 1.

    Args:
        label: the encoding's, for the errors.
        positions: not negative.
        enough: an end that needs no further question.

    Raises:
        ValueError: for a negative position.
        RuntimeError: in a compiled graph, for positions outside of 0..``enough`` - 1 that say no
            end.
    """
    end = known_end(positions)
    if is_recorded(positions):
        if end is not None:
            return end
        torch._assert_async(
            ((positions >= 0) & (positions < enough)).all(),
            f"`positions` must be below {enough} in a compiled graph and not negative for "
            f"{label!r}; give a larger `max_positions`.",
        )
        return enough
    if end is not None and end <= enough:
        return end
    if not positions.numel():
        return 0
    low, high = torch.stack(positions.aminmax()).tolist()
    refuse_below_0(label, low)
    return int(high) + 1


def check_not_negative(label: str, positions: Tensor) -> None:
    """Refuse positions below 0 for an encoding that depends on more than their differences.

    Args:
        label: the encoding's.
        positions: any shape, int64; those that say their end are not looked at.

    Raises:
        ValueError: for a negative position.
        RuntimeError: the same in a compiled graph.
    """
    if known_end(positions) is not None:
        return
    if is_recorded(positions):
        torch._assert_async(
            (positions >= 0).all(), f"`positions` must not be negative for {label!r}."
        )
    elif positions.numel():
        refuse_below_0(label, int(positions.min()))


def refuse_below_0(label: str, least: int) -> None:
    """Refuse the least position of some if it is negative.

    Raises:
        ValueError: naming the encoding and the position.
    """
    if least < 0:
        raise ValueError(
            f"`positions` must not be negative for the encoding {label!r}, which depends on more "
            f"than their differences, but begin at {least}."
        )
