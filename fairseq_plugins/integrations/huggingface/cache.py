"""Attention states in a cache of transformers: keys and values, or sums for linear attention."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from fairseq_plugins.attention.base import State
from fairseq_plugins.attention.cache import reordered


class StateLayer(CacheLayerMixin):
    """Cache layer with the state of one attention, batch first in every tensor.

    ``update`` returns keys and values unchanged; the attention itself stores what it needs.

    Args:
        croppable: whether tokens can be removed again, as from a list of keys; not from sums.
    """

    # Class attributes that transformers reads.
    is_sliding = False
    supports_early_init = False

    def __init__(self, *, croppable: bool) -> None:
        super().__init__()
        self.is_croppable = croppable
        self.state: State | None = None
        self.seen = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        self.is_initialized = True
        self.seen += key_states.size(-2)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.state, self.seen, self.is_initialized = None, 0, False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.state is not None:
            self.state = reordered(self.state, beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Select rows of the batch, by their indices or by a mask."""
        self.reorder_cache(indices.nonzero().flatten() if indices.dtype == torch.bool else indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the batch."""
        if self.state is not None:
            rows = len(next(iter(self.state.values())))
            self.reorder_cache(torch.arange(rows).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last ``-tokens_to_remove`` tokens.

        Raises:
            ValueError: the state has constant size, so tokens cannot be removed.
        """
        if tokens_to_remove == 0 or self.state is None:
            return
        if not self.is_croppable:
            raise ValueError(
                "`tokens_to_remove` must be 0 for a state of constant size, as of linear attention "
                f"or of an encoding of neighbouring inputs, but is {tokens_to_remove} instead; "
                "generate without an assistant."
            )
        if tokens_to_remove > 0:
            raise ValueError(
                "`tokens_to_remove` must be 0 or negative, as transformers has it, but is "
                f"{tokens_to_remove} instead."
            )
        self.seen += tokens_to_remove
        # Keys beyond the positions are ignored and overwritten.
        for name in ("k_positions", "key_padding_mask"):
            if name in self.state:
                self.state[name] = self.state[name][:, : self.seen]


def prepare_cache(cache: Cache | None, layers: int, *, croppable: bool, inputs: bool) -> Cache:
    """Return a cache of ``StateLayer``; an empty cache is converted in place.

    Args:
        cache: a ``DynamicCache``, or None for a new one.
        layers: number of attention layers of the model.
        croppable: see ``StateLayer``.
        inputs: add a layer for an input encoding that depends on earlier tokens.

    Raises:
        ValueError: another kind of cache, or one filled by another model.
    """
    if cache is None:
        cache = DynamicCache()
    if type(cache) is not DynamicCache or cache.offloading:
        kind = (
            "an offloaded one" if cache.__class__ is DynamicCache else f"a {type(cache).__name__}"
        )
        raise ValueError(
            "`past_key_values` must be a DynamicCache without offloading, which `generate` makes "
            f"without `cache_implementation`, but is {kind} instead."
        )
    if all(isinstance(layer, StateLayer) for layer in cache.layers) and cache.layers:
        return cache
    if cache.get_seq_length():
        raise ValueError(
            f"`past_key_values` must be empty or filled by this model, but has "
            f"{cache.get_seq_length()} tokens that were cached without its position encoding."
        )
    cache.layer_class_to_replicate = None
    cache.layers = [StateLayer(croppable=croppable) for _ in range(layers)]
    if inputs:
        cache.layers.append(StateLayer(croppable=False))
    return cache


def state_bytes(cache: Cache) -> int:
    """Return the memory of all states in bytes; with linear attention the same at any length."""
    states = [layer.state for layer in cache.layers if isinstance(layer, StateLayer)]
    tensors: list[torch.Tensor] = [x for state in states if state for x in state.values()]
    return sum(x.numel() * x.element_size() for x in tensors)
