"""Terms that encodings add to logits and outputs, their shapes checked."""

import operator
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.base import relative_positions, widened


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


def decay_term(log_decay: Tensor, q: Tensor, k: Tensor, *positions: Tensor, scale: float) -> Tensor:
    """Return the difference of scale q.k r^(s - t) and scale q.k: (B, H, T, S).

    Later keys, which the causal mask hides, count as distance 0.

    Args:
        log_decay: log r, (H,).
        q: (B, H, T, D).
        k: (B, H, S, D).
        positions: of queries (B or 1, T), then of keys (B or 1, S).
        scale: of the logits.
    """
    distance = -relative_positions(*positions).clamp(max=0).unsqueeze(1)
    factor = torch.exp(log_decay.view(-1, 1, 1) * distance) - 1
    return widened((scale * q) @ k.mT) * factor  # scaling first keeps float16 in range
