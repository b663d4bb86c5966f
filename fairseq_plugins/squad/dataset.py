"""fairseq datasets of SQuAD's windows."""

from pathlib import Path
from typing import Any

import numpy as np
from fairseq import data
from numpy.typing import NDArray

from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.squad.features import MADE_BY, Features
from fairseq_plugins.squad.folder import features_path


class ShuffledDataset(data.BaseWrapperDataset):
    """A dataset shuffled in every epoch, by NumPy's generator, which fairseq seeds.

    Args:
        dataset: examples with sizes.
        by_length: sort by length, so that batches (shuffled later) have less padding.
    """

    def __init__(self, dataset: Any, *, by_length: bool = False) -> None:
        super().__init__(dataset)
        self._by_length = by_length

    def ordered_indices(self) -> NDArray[np.int64]:
        """Return the examples' indices in the order in which they fill batches."""
        order = np.random.permutation(len(self))
        if not self._by_length:
            return order
        return np.lexsort((order, np.array([self.num_tokens(i) for i in range(len(self))])))


def load_windows(
    folder: Path, split: str, dictionary: data.Dictionary, *, combine: bool = False
) -> tuple[Any, Features]:
    """Load the windows of a split as a dataset of padded batches, and their features.

    A batch: id (B,), net_input.src_tokens (B, T), net_input.src_lengths (B,), target.start and
    target.end (B,), nsentences, ntokens.

    Raises:
        DataError: a file is missing or damaged, or the two do not match.
    """
    features = Features.load(features_path(folder, split))
    if (folder / f"{split}.idx").is_file():
        check_split(folder / split, len(dictionary))
    tokens = data.data_utils.load_indexed_dataset(str(folder / split), dictionary, combine=combine)
    if tokens is None:
        raise DataError(f"{folder / split}.bin is missing; {MADE_BY} makes it")
    if len(tokens) != len(features):
        raise DataError(
            f"{folder / split}.bin has {len(tokens)} windows, but {features_path(folder, split)} "
            f"has {len(features)}: prepare the folder again"
        )
    parts = {
        "id": data.IdDataset(),
        "net_input": {
            "src_tokens": data.RightPadDataset(tokens, pad_idx=dictionary.pad()),
            "src_lengths": data.NumelDataset(tokens, reduce=False),
        },
        "target": {
            "start": data.RawLabelDataset(features.start.tolist()),
            "end": data.RawLabelDataset(features.end.tolist()),
        },
        "nsentences": data.NumSamplesDataset(),
        "ntokens": data.NumelDataset(tokens, reduce=True),
    }
    return data.NestedDictionaryDataset(parts, sizes=[tokens.sizes]), features
