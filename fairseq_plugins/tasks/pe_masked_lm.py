"""Task ``pe_masked_lm``: fairseq's ``masked_lm`` with whole-word masking and segment pairs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
from fairseq import utils
from fairseq.data import MaskTokensDataset, RightPadDataset, SortDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from fairseq_plugins.common.option_field import option
from fairseq_plugins.data.segment_pairs import SegmentPairs
from fairseq_plugins.data.whole_words import word_start_mask

PIECES = "bpe"  # subfolder of a data folder
# Options of fairseq's MaskTokensDataset.
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
    """Options of fairseq's task, of the tokenizer, and of the samples."""

    pieces: Optional[str] = option(
        None,
        "tokenizer folder, for word boundaries with --mask-whole-words (default: bpe/ "
        "in the data folder)",
    )
    pairs: bool = option(
        False,
        "split a random half of the samples into pairs of segments as in BERT, "
        "`<s> a </s> b </s>`; line ends within a sample are dropped",
    )


@register_task("pe_masked_lm", dataclass=PEMaskedLMConfig)
class PEMaskedLMTask(MaskedLMTask):
    """fairseq's ``masked_lm`` task with a working ``--mask-whole-words``.

    fairseq's own whole-word masking fails, since it reads options from ``self.args``, which is not
    set. With whole words, ``--mask-prob`` is the share of words, and all subwords of a word are
    masked, replaced or kept together.
    """

    cfg: PEMaskedLMConfig

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> Any:
        """Return the samples of a split before masking."""
        samples = super()._load_dataset_split(split, epoch, combine)
        if not self.cfg.pairs:
            return samples
        return SegmentPairs(samples, self.source_dictionary.eos(), self.cfg.seed)

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Load a split.

        Raises:
            DataError: the tokenizer folder is missing, damaged, or of another dictionary.
        """
        if not self.cfg.mask_whole_words:
            super().load_dataset(split, epoch, combine, **kwargs)
            return
        folder = self.cfg.pieces or Path(utils.split_paths(self.cfg.data)[0], PIECES)
        dictionary = self.source_dictionary
        source, target = MaskTokensDataset.apply_mask(
            self._load_dataset_split(split, epoch, combine),
            dictionary,
            pad_idx=dictionary.pad(),
            mask_idx=self.mask_idx,
            mask_whole_words=word_start_mask(dictionary, Path(folder)),
            seed=self.cfg.seed,
            skip_masking=self.cfg.skip_masking,
            **{name: getattr(self.cfg, name) for name in MASKING},
        )
        with data_utils.numpy_seed(self.cfg.seed):
            shuffle = np.random.permutation(len(source))
        dataset = self._regular_dataset(source, RightPadDataset(target, pad_idx=dictionary.pad()))
        self.datasets[split] = SortDataset(dataset, sort_order=[shuffle, source.sizes])
