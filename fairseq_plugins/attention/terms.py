"""Terms that encodings add to logits and outputs, their shapes checked."""

import operator
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.base import relative_positions


def term_of(part: PositionEncoding, hook: str, *inputs: Tensor) -> Tensor:
    """Call a hook, and check the shape of its result, which would be broadcast silently.

    Args:
        part: an encoding that overrides the hook.
        hook: ``attn_bias``, ``relative_logits`` or ``relative_values``.
        inputs: its arguments; the last two are the positions of queries and of keys.

    Raises:
        ValueError: the result is not (B or 1, H or 1, T, S); of values, (B or 1, H or 1, T, D).
    """
    term: Tensor = getattr(part, hook)(*inputs)
    if torch.compiler.is_compiling():
        return term  # Comparing sizes would fix them in the graph.
    batch = next((x.size(0) for x in inputs if x.size(0) != 1), 1)
    heads, queries, keys = part.context.num_heads, inputs[-2].size(1), inputs[-1].size(1)
    last = part.context.head_dim if hook == "relative_values" else keys
    shape, rest = tuple(term.shape), (queries, last)
    if shape[:1] not in ((1,), (batch,)) or shape[1:] not in ((1, *rest), (heads, *rest)):
        rows = "1" if batch == 1 else f"{batch} or 1"
        raise ValueError(
            f"`{hook}` of the encoding {part.label!r} must be ({rows}, {heads} or 1, {queries}, "
            f"{last}), rows and heads first, but is {shape} instead."
        )
    return term


def sum_of_terms(
    parts: Sequence[PositionEncoding],
    hook: str,
    *inputs: Tensor,
    shared: SharedPass | None = None,
) -> Tensor:
    """Add the terms of encodings, those that all layers share once per pass.

    Args:
        parts: at least one.
        hook: see ``term_of``.
        inputs: its arguments.
        shared: cache of the pass; None for terms that depend on a layer's inputs.
    """

    def term(part: PositionEncoding) -> Tensor:
        if shared is None or not part.shared_across_layers:
            return term_of(part, hook, *inputs)
        return shared.once((hook, id(part)), lambda: term_of(part, hook, *inputs))

    return reduce(operator.add, (term(part) for part in parts))


def decay_term(
    encoding: PositionEncoding, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
) -> Tensor:
    """Return q.k r^(s - t) - q.k, in float32 or wider, for an encoding that decays.

    Later keys, which the causal mask hides, count as distance 0.

    Args:
        encoding: gives the logarithms of r, one for each head.
        q: (B, H, T, D), scaled already, which keeps the products in float16's range.
        k: (B, H, S, D).
        q_positions: (B or 1, T).
        k_positions: (B or 1, S).

    Returns:
        (B, H, T, S).
    """
    distance = -relative_positions(q_positions, k_positions).clamp(max=0).unsqueeze(1)
    factor = torch.exp(encoding.log_decay().view(-1, 1, 1) * distance) - 1
    logits = q @ k.mT
    return logits.to(torch.promote_types(logits.dtype, torch.float32)) * factor
