"""Decoding with stochastic encodings, for batches whose rows have different seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_plugins.attention.inputs import rows_of
from fairseq_plugins.encodings.position_bounds import is_recorded

if TYPE_CHECKING:
    from fairseq_plugins.attention.base import Attention

State = dict[str, Tensor]


def rows_by_seed(state: State) -> list[Tensor]:
    """Return the rows of each seed in a state; empty if all rows have the same seed."""
    if is_recorded(state["seed"]):
        return []
    seeds = state["seed"][:, 0].tolist()
    if len(set(seeds)) == 1:
        return []
    device = state["seed"].device
    return [
        torch.tensor([i for i, other in enumerate(seeds) if other == seed], device=device)
        for seed in dict.fromkeys(seeds)
    ]


def step_by_seed(
    attention: "Attention",
    groups: Sequence[Tensor],
    tensors: Sequence[Tensor],
    positions: Tensor,
    key_padding_mask: Tensor | None,
    state: State,
) -> tuple[Tensor, State]:
    """Run ``step`` for each group of rows with the same seed."""
    results = [
        attention.step(
            *(x[rows] for x in tensors),
            positions=rows_of(positions, rows),
            key_padding_mask=None if key_padding_mask is None else key_padding_mask[rows],
            state={name: rows_of(tensor, rows) for name, tensor in state.items()},
        )
        for rows in groups
    ]
    order = torch.cat(list(groups)).argsort()
    outputs, states = zip(*results, strict=True)
    joined = {name: torch.cat([after[name] for after in states])[order] for name in states[0]}
    return torch.cat(outputs)[order], joined


def attend_by_seed(
    attention: "Attention",
    groups: Sequence[Tensor],
    q: Tensor,
    state: State,
    q_positions: Tensor,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Run ``attend`` for each group of rows with the same seed."""
    results = [
        attention.attend(
            q[rows],
            {name: rows_of(tensor, rows) for name, tensor in state.items()},
            q_positions=rows_of(q_positions, rows),
            need_weights=need_weights,
        )
        for rows in groups
    ]
    order = torch.cat(list(groups)).argsort()
    outputs, weights = zip(*results, strict=True)
    output = torch.cat(outputs)[order]
    return output, torch.cat(weights)[order] if need_weights else None
