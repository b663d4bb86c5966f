"""A cache of keys or values that grows by doubling, so that a decoding step copies one row."""

import torch
from torch import Tensor

_FIRST_CAPACITY = 64
_FILLED = "_filled"  # attribute of a buffer: its rows that are taken


def append_rows(buffer: Tensor, used: int, new: Tensor) -> Tensor:
    """A buffer whose rows ``used``..``used + T`` are ``new``.

    Rows are written in place where there is room that nobody else has taken: a step from a state
    that another step has continued already leaves that one's rows alone. Under autograd, which
    does not allow it, everything is copied.

    Args:
        buffer: (B, H, capacity, D), of which the first ``used`` rows count.
        used: S.
        new: (B, H, T, D).

    Returns:
        (B, H, capacity >= S + T, D), the same memory as ``buffer`` or another.
    """
    if torch.is_grad_enabled() and (buffer.requires_grad or new.requires_grad):
        return torch.cat((buffer[:, :, :used], new), dim=2)
    end = used + new.size(2)
    # A buffer that a beam's reordering made carries no mark, and is nobody else's.
    if end > buffer.size(2) or getattr(buffer, _FILLED, used) != used:
        capacity = max(2 * used, end, _FIRST_CAPACITY)
        grown = buffer.new_empty(*buffer.shape[:2], capacity, buffer.size(3))
        grown[:, :, :used] = buffer[:, :, :used]
        buffer = grown
    buffer[:, :, used:end] = new
    setattr(buffer, _FILLED, end)
    return buffer
