"""Samples of a masked language model cut into pairs of segments, as BERT is trained on."""

from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset
from torch import Tensor

_SHORTEST_PAIR = 2  # tokens of text, one for each segment


class SegmentPairs(BaseWrapperDataset):
    """Samples ``<s> a </s>`` or ``<s> a </s> b </s>``, each in one case of two.

    Which samples are pairs and where they are cut follows from the seed and the sample's number,
    so that it is the same in every epoch. Ends of lines within a sample are dropped, since
    ``</s>`` only separates segments. A sample is never longer than the one that it is made of.

    Args:
        dataset: samples (T,) int64 that begin with ``<s>``.
        eos: number of ``</s>`` in the dictionary.
        seed: of the cuts.
    """

    def __init__(self, dataset: Any, eos: int, seed: int) -> None:
        super().__init__(dataset)
        self._eos, self._seed = eos, seed

    def __getitem__(self, index: int) -> Tensor:
        """A sample (T',) with T' at most the length of the wrapped one, or 2 where that is 1."""
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
