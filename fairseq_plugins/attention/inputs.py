"""Checks and selections of an attention's inputs and encodings."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_plugins.encodings import IncompatibleEncodingError, PositionEncoding
from fairseq_plugins.encodings.position_bounds import with_end_of

if TYPE_CHECKING:
    from fairseq_plugins.attention.base import Attention


def check_encoding(attention: "Attention", encoding: PositionEncoding) -> None:
    """Check that an attention supports an encoding, and that this was built for it.

    Raises:
        IncompatibleEncodingError: it does not support a hook, or the encoding not its direction.
        ValueError: the encoding was built for other sizes, or for the other value of ``causal``.
    """
    reason: str | None
    if missing := sorted(encoding.hooks - attention.supported_hooks):
        user = f"{attention.name} attention"
        noun, verb = ("hooks", "need") if len(missing) > 1 else ("hook", "needs")
        reason = f"its {noun} `{'`, `'.join(missing)}` {verb} {attention.needs}"
    elif attention.causal:
        user, reason = "a causal model", encoding.causal_refusal
    else:
        user, reason = "bidirectional and cross-attention", encoding.bidirectional_refusal
    if reason:
        raise IncompatibleEncodingError(
            f"{user} cannot use the encoding {encoding.label!r}: {reason}.", reason
        )
    shape = (encoding.context.num_heads, encoding.context.head_dim)
    if shape != (attention.num_heads, attention.head_dim):
        raise ValueError(
            f"`encoding` was built for (num_heads, head_dim) = {shape}, "
            f"but the attention has {(attention.num_heads, attention.head_dim)}."
        )
    parts = (part for part in encoding.modules() if isinstance(part, PositionEncoding))
    if any(part.context.causal != attention.causal for part in parts):
        raise ValueError(
            f"`encoding` {encoding.label!r} must be built for causal={attention.causal}, as its "
            f"attention is, but is built for causal={not attention.causal} instead."
        )


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
    """Select sequences of a batch (B or 1, ...), and keep the bound of positions.

    A tensor with one row for all sequences is returned as it is.
    """
    return x if x.size(0) == 1 else with_end_of(x[rows], x)


def indices_where(
    parts: Sequence[PositionEncoding], has: Callable[[PositionEncoding], bool]
) -> tuple[int, ...]:
    """Return the indices of the parts for which a condition holds."""
    return tuple(index for index, part in enumerate(parts) if has(part))


def has_gradient(x: Tensor | None) -> bool:
    """Return whether x is a tensor that needs a gradient."""
    return x is not None and x.requires_grad
