"""Checks and selections of an attention's inputs and encodings."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.position_bounds import known_end, with_end


def check_dtypes(**inputs: Tensor) -> None:
    """Check that inputs have one floating dtype, unless autocast will cast them."""
    first = next(iter(inputs.values()))
    if all(x.dtype == first.dtype for x in inputs.values()) and first.is_floating_point():
        return
    if torch.is_autocast_enabled(first.device.type):
        return
    dtypes = " and ".join(f"`{name}` is {x.dtype}" for name, x in inputs.items())
    raise ValueError(f"`{'`, `'.join(inputs)}` must have one floating dtype, but {dtypes}.")


def rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """Select rows of a batch, keeping the bound of positions; a single shared row stays."""
    return x if x.size(0) == 1 else with_end(x[rows], known_end(x))


def indices_where(
    parts: Sequence[PositionEncoding], has: Callable[[PositionEncoding], bool]
) -> tuple[int, ...]:
    """Return the indices of the parts for which a condition holds."""
    return tuple(index for index, part in enumerate(parts) if has(part))


def has_gradient(x: Tensor | None) -> bool:
    """Return whether x is a tensor that needs a gradient."""
    return x is not None and x.requires_grad
