"""Samples cut into pairs of segments."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairseq_plugins.data.segment_pairs import SegmentPairs

BOS, EOS = 0, 2


class Samples(list[Tensor]):
    """Samples with the sizes that fairseq asks for."""

    @property
    def sizes(self) -> Any:
        return np.array([len(one) for one in self])


def samples(length: int, count: int) -> Samples:
    """Samples <s> text </s> text ..., whose words are 10, 11, ..."""
    text = torch.arange(10, 9 + length)
    text[3::5] = EOS
    return Samples(torch.cat([torch.tensor([BOS]), text]) for _ in range(count))


@pytest.mark.parametrize("length", [2, 3, 4, 5, 20])
def test_words_keep_their_order_and_samples_their_length(length: int) -> None:
    whole = samples(length, 200)
    counts = set()
    for before, after in zip(whole, SegmentPairs(whole, EOS, seed=1), strict=True):
        words = [int(word) for word in before[1:] if word != EOS]
        found = [int(word) for word in after if word not in (BOS, EOS)]
        assert found == words[: len(found)]
        assert len(after) <= max(2, len(before))
        assert after[0] == BOS and after[-1] == EOS
        ends = (after == EOS).nonzero().flatten().tolist()
        counts.add(len(ends))
        assert len(ends) == 1 or 1 < ends[0] < len(after) - 2  # no empty segment
    assert counts == ({1, 2} if length >= 5 else {1}) or length in (3, 4)


def test_half_of_the_samples_are_pairs_and_the_seed_says_which() -> None:
    whole = samples(20, 400)
    pairs = [int((one == EOS).sum()) == 2 for one in SegmentPairs(whole, EOS, seed=1)]
    again = [int((one == EOS).sum()) == 2 for one in SegmentPairs(whole, EOS, seed=1)]
    other = [int((one == EOS).sum()) == 2 for one in SegmentPairs(whole, EOS, seed=2)]
    assert pairs == again != other
    assert 0.4 < np.mean(pairs) < 0.6
