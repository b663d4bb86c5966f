"""Upper bounds of positions, attached to their tensors, and checks of positions.

A known bound saves waiting for a GPU to compute the largest position.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels.backend import is_traced

# The attribute of a tensor of positions that are all in 0..end - 1. It is no field of a subclass
# of Tensor because AOTAutograd cannot trace one.
_END = "_end"


def with_end(positions: Tensor, end: int | None) -> Tensor:
    """Attach the bound ``end`` to a tensor whose positions are all in 0..``end`` - 1.

    Returns the same tensor. Slices, sums and copies of it have no bound. ``end=None`` attaches
    none.
    """
    if end is not None:
        setattr(positions, _END, end)
    return positions


def with_end_of(x: Tensor, positions: Tensor) -> Tensor:
    """Attach the bound of ``positions``, if they have one, to a selection or copy of them."""
    return with_end(x, known_end(positions))


def known_end(*positions: Tensor) -> int | None:
    """Return the largest bound attached to these positions; None if any of them has none.

    Positions with a bound are not negative.
    """
    ends: list[Any] = [getattr(tensor, _END, None) for tensor in positions]
    return None if None in ends else max(ends)


def is_recorded(x: Tensor) -> bool:
    """Return whether operations on ``x`` are only recorded, so that its values are unknown.

    True in a compiled or exported graph, under ``make_fx``, for fake and meta tensors, and while a
    CUDA graph is captured.
    """
    if torch.compiler.is_compiling() or is_traced():
        return True
    if type(x) not in (Tensor, torch.nn.Parameter) or x.is_meta:
        return True
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def bounds_of(positions: Tensor) -> tuple[int, int]:
    """Return bounds of the positions: the smallest and the largest + 1.

    An attached bound gives (0, end). Without one this waits for the device.
    """
    end = known_end(positions)
    if end is not None:
        return 0, end
    return _extremes(positions)


def _extremes(positions: Tensor) -> tuple[int, int]:
    """Return the smallest position and the largest + 1, or (0, 0) of none; wait for the device."""
    if not positions.numel():
        return 0, 0
    low, high = torch.stack(positions.aminmax()).tolist()
    return low, high + 1


def end_of(label: str, positions: Tensor, enough: int) -> int:
    """Return an upper bound of ``positions`` (any shape, int64), tight if it exceeds ``enough``.

    This is the attached bound if it is at most ``enough``, else the largest position + 1, which
    waits for the device. A compiled graph cannot wait: it takes the attached bound, or asserts on
    the device that positions are in 0..``enough`` - 1.

    Args:
        label: name of the encoding, for errors.
        positions: not negative.
        enough: a bound that need not be tightened.

    Raises:
        ValueError: for a negative position.
        RuntimeError: in a compiled graph, for positions without a bound outside 0..``enough`` - 1.
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
    low, end = _extremes(positions)
    check_lowest(label, low)
    return end


def check_not_negative(label: str, positions: Tensor) -> None:
    """Check positions of an encoding that is not defined below 0.

    Args:
        label: name of the encoding.
        positions: any shape, int64; an attached bound makes the check unnecessary.

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
        check_lowest(label, int(positions.min()))


def check_lowest(label: str, least: int) -> None:
    """Check that the smallest position is not negative.

    Raises:
        ValueError: naming the encoding and the position.
    """
    if least < 0:
        raise ValueError(
            f"`positions` must not be negative for the encoding {label!r}, which depends on more "
            f"than their differences, but begin at {least}."
        )
