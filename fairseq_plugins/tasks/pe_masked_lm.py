"""Task ``pe_masked_lm``: fairseq's ``masked_lm`` with whole words masked and pairs of segments."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
from fairseq import utils
from fairseq.data import MaskTokensDataset, RightPadDataset, SortDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from fairseq_plugins.data.segment_pairs import SegmentPairs
from fairseq_plugins.data.whole_words import word_start_mask

PIECES = "bpe"  # in a data folder
# How tokens or words are masked, beside the seed and whether it is words.
MASKING = (
    "mask_prob",
    "leave_unmasked_prob",
    "random_token_prob",
    "freq_weighted_replacement",
    "mask_multiple_length",
    "mask_stdev",
)


@dataclass
class PEMaskedLMConfig(MaskedLMConfig):
    """Options of fairseq's task, of the pieces and of the samples."""

    pieces: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of the tokenizer by which --mask-whole-words knows words (default: "
            "bpe/ in the data folder)"
        },
    )
    pairs: bool = field(
        default=False,
        metadata={
            "help": "cut every second sample, drawn at random, into a pair of segments as BERT has "
            "them, `<s> a </s> b </s>`; ends of lines within a sample are dropped"
        },
    )


@register_task("pe_masked_lm", dataclass=PEMaskedLMConfig)
class PEMaskedLMTask(MaskedLMTask):
    """fairseq's own reads the pieces' options from ``self.args``, which no task here has.

    Without ``--mask-whole-words`` it is fairseq's. With it ``--mask-prob`` is the share of words,
    and the pieces of one are all masked, all replaced or all left as they are.
    """

    cfg: PEMaskedLMConfig

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> Any:
        """The samples of a split before masking."""
        samples = super()._load_dataset_split(split, epoch, combine)
        if not self.cfg.pairs:
            return samples
        return SegmentPairs(samples, self.source_dictionary.eos(), self.cfg.seed)

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Load a split: as fairseq's does, but for what says where words begin.

        Raises:
            DataError: the folder of pieces is not there, is damaged, or is another dictionary's.
        """
        if not self.cfg.mask_whole_words:
            super().load_dataset(split, epoch, combine, **kwargs)
            return
        source, target = self._masked(self._load_dataset_split(split, epoch, combine))
        with data_utils.numpy_seed(self.cfg.seed):
            shuffle = np.random.permutation(len(source))
        padded = RightPadDataset(target, pad_idx=self.source_dictionary.pad())
        found = self._regular_dataset(source, padded)
        self.datasets[split] = SortDataset(found, sort_order=[shuffle, source.sizes])

    def _masked(self, dataset: Any) -> tuple[Any, Any]:
        """The samples with words masked, and what is to be predicted."""
        folder = self.cfg.pieces or Path(utils.split_paths(self.cfg.data)[0], PIECES)
        source, target = MaskTokensDataset.apply_mask(
            dataset,
            self.source_dictionary,
            pad_idx=self.source_dictionary.pad(),
            mask_idx=self.mask_idx,
            mask_whole_words=word_start_mask(self.source_dictionary, Path(folder)),
            seed=self.cfg.seed,
            skip_masking=self.cfg.skip_masking,
            **{name: getattr(self.cfg, name) for name in MASKING},
        )
        return source, target
