"""Decoding with stochastic encodings, for batches whose rows have different seeds."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fairseq_plugins.attention.inputs import rows_of
from fairseq_plugins.encodings.position_bounds import is_recorded

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


def run_by_seed(
    groups: Sequence[Tensor], run: Callable[[Tensor], tuple[Tensor, State]]
) -> tuple[Tensor, State]:
    """Run a function for each group of rows with the same seed, and join the results.

    Args:
        groups: from ``rows_by_seed``.
        run: from row indices to an output and other tensors by name, the batch first in each.
    """
    outputs, states = zip(*map(run, groups), strict=True)
    order = torch.cat(list(groups)).argsort()
    joined = {name: torch.cat([after[name] for after in states])[order] for name in states[0]}
    return torch.cat(outputs)[order], joined


def rows_of_state(state: State, rows: Tensor) -> State:
    """Select rows of a state."""
    return {name: rows_of(tensor, rows) for name, tensor in state.items()}
