"""A cache of keys or values that grows by doubling, so that a decoding step copies one row."""

import torch
from torch import Tensor

from fairseq_plugins.attention.base import State
from fairseq_plugins.encodings.position_bounds import known_end, with_end

_FIRST_CAPACITY = 64
# An attribute of a buffer, the rows of it that are taken. Only what was made here has one: a view
# of it has none, nor has a tensor of somebody else.
_FILLED = "_filled"


def append_rows(buffer: Tensor, used: int, new: Tensor) -> Tensor:
    """A buffer whose rows ``used``..``used + T`` are ``new``.

    Rows are written in place where there is room that nobody else has taken: a step from a state
    that another step has continued already leaves that one's rows alone. What another may write
    to as well, as a part of a batch whose memory is the whole's, is copied first. Under autograd,
    which does not allow it, everything is copied.

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
    if end > buffer.size(2) or getattr(buffer, _FILLED, None) != used:
        capacity = max(2 * used, end, _FIRST_CAPACITY)
        grown = buffer.new_empty(*buffer.shape[:2], capacity, buffer.size(3))
        grown[:, :, :used] = buffer[:, :, :used]
        buffer = grown
    buffer[:, :, used:end] = new
    setattr(buffer, _FILLED, end)
    return buffer


def reordered(state: State, order: Tensor) -> State:
    """A state in which row i is what was row ``order[i]``, in memory of its own.

    The same as indexing every tensor, but that the next step need not copy the buffers again, nor
    ask a GPU where positions end.
    """
    return {name: _selected(tensor, order.to(tensor.device)) for name, tensor in state.items()}


def _selected(tensor: Tensor, order: Tensor) -> Tensor:
    selected = with_end(tensor.index_select(0, order), known_end(tensor))
    if hasattr(tensor, _FILLED):
        setattr(selected, _FILLED, getattr(tensor, _FILLED))
    return selected
