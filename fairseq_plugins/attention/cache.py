"""Buffers of keys or values that grow by doubling, so that a decoding step copies one row."""

import torch
from torch import Tensor

from fairseq_plugins.attention.seeds import State
from fairseq_plugins.encodings.position_bounds import with_end_of

_FIRST_CAPACITY = 64
# The attribute of a buffer that counts its used rows. Views and tensors from elsewhere have none.
_FILLED = "_filled"


def append_rows(buffer: Tensor, used: int, new: Tensor) -> Tensor:
    """Write ``new`` to rows ``used``..``used + T`` of a buffer, and return the buffer.

    Rows are written in place where they are free: if another step already continued from this
    state, its rows are not overwritten. Memory that others may write to, such as part of a batch,
    is copied first. Under autograd, which forbids writing in place, everything is copied; outside
    of inference mode, a buffer that was made in it.

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
    if _is_locked(buffer) or end > buffer.size(2) or getattr(buffer, _FILLED, None) != used:
        capacity = max(2 * used, end, _FIRST_CAPACITY)
        grown = buffer.new_empty(*buffer.shape[:2], capacity, buffer.size(3))
        grown[:, :, :used] = buffer[:, :, :used]
        buffer = grown
    buffer[:, :, used:end] = new
    setattr(buffer, _FILLED, end)
    return buffer


def _is_locked(buffer: Tensor) -> bool:
    """Return whether the buffer was made in inference mode and would be written to outside."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return False
    return buffer.is_inference()


def reordered(state: State, order: Tensor) -> State:
    """Reorder the batch of a state: row i becomes row ``order[i]``, in new memory.

    Unlike indexing every tensor, this keeps free rows of the buffers and the bound of positions.
    """
    return {name: _selected(tensor, order.to(tensor.device)) for name, tensor in state.items()}


def _selected(tensor: Tensor, order: Tensor) -> Tensor:
    selected = with_end_of(tensor.index_select(0, order), tensor)
    if hasattr(tensor, _FILLED):
        setattr(selected, _FILLED, getattr(tensor, _FILLED))
    return selected


def append_state(state: State, new: State) -> State:
    """Append the keys of ``new`` to those of ``state``.

    ``k``, ``v`` and ``content_k`` may have more rows (free capacity) than ``k_positions``.
    """
    used = state["k_positions"].size(1)
    names = [name for name in ("k", "v", "content_k") if name in new]
    result: State = {name: append_rows(state[name], used, new[name]) for name in names}
    result["k_positions"] = torch.cat((state["k_positions"], new["k_positions"]), dim=1)
    if "key_padding_mask" in state or "key_padding_mask" in new:
        masks = [
            part.get("key_padding_mask", torch.zeros_like(part["k_positions"], dtype=torch.bool))
            for part in (state, new)
        ]
        result["key_padding_mask"] = torch.cat(masks, dim=1)
    return result


def used_rows(state: State, name: str) -> Tensor:
    """Return the used rows of keys or values: (B, H, S, D)."""
    return state[name][:, :, : state["k_positions"].size(1)]


def first_keys(state: State, count: int) -> State:
    """Return the state of the first keys; a seed is that of all."""
    tokens_at = {"k_positions": 1, "key_padding_mask": 1}
    kept = ((name, x) for name, x in state.items() if name != "seed")
    first = {name: x.narrow(tokens_at.get(name, 2), 0, count) for name, x in kept}
    with_end_of(first["k_positions"], state["k_positions"])
    return first
