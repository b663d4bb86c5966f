"""Masked language model samples split into pairs of segments, as in BERT's training."""

from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset
from torch import Tensor

_SHORTEST_PAIR = 2  # tokens of text, one for each segment


class SegmentPairs(BaseWrapperDataset):
    """Samples ``<s> a </s>`` or ``<s> a </s> b </s>``, with probability 1/2 each.

    The choice and the cut depend only on the seed and the sample's index, so they are the same in
    every epoch. Line ends within a sample are dropped, since ``</s>`` separates segments. Samples
    never get longer.

    Args:
        dataset: samples (T,) int64 that begin with ``<s>``.
        eos: index of ``</s>`` in the dictionary.
        seed: random seed.
    """

    def __init__(self, dataset: Any, eos: int, seed: int) -> None:
        super().__init__(dataset)
        self._eos, self._seed = eos, seed

    def __getitem__(self, index: int) -> Tensor:
        """Return a sample (T',), with T' at most the original length or 2."""
        sample = self.dataset[index]
        first, rest = sample[:1], sample[1:]
        words = rest[rest != self._eos]
        eos = sample.new_tensor([self._eos])
        random = np.random.default_rng((self._seed, index))
        is_pair = bool(random.integers(2))
        words = words[: max(0, len(sample) - (3 if is_pair else 2))]
        if not is_pair or len(words) < _SHORTEST_PAIR:
            return torch.cat([first, words, eos])
        cut = int(random.integers(1, len(words)))
        return torch.cat([first, words[:cut], eos, words[cut:], eos])
