"""Task ``pe_sentence_prediction``: fairseq's ``sentence_prediction`` with batching by length."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import SortDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.option_field import option
from fairseq_plugins.common.provenance import describe_data


@dataclass
class PESentencePredictionConfig(SentencePredictionConfig):
    """Options of fairseq's task and of batching."""

    group_by_length: bool = option(
        False, "batch examples of similar length, in random order, for less padding"
    )


@register_task("pe_sentence_prediction", dataclass=PESentencePredictionConfig)
class PESentencePredictionTask(SentencePredictionTask):
    """fairseq's task with optional batches of examples of similar length."""

    cfg: PESentencePredictionConfig

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Load a split; training shuffles its batches in every epoch.

        Raises:
            OptionError: `separator_token` does not match the tokenizer of the data.
        """
        check_separator(self.cfg)
        dataset = super().load_dataset(split, combine=combine, **kwargs)
        if self.cfg.group_by_length:
            with data_utils.numpy_seed(self.cfg.seed):
                shuffle = np.random.permutation(len(dataset))
            lengths = np.array([dataset.num_tokens(i) for i in range(len(dataset))])
            dataset = SortDataset(dataset, sort_order=[shuffle, lengths])
            self.datasets[split] = dataset
        return dataset


def check_separator(cfg: PESentencePredictionConfig) -> None:
    """Check that `separator_token` matches the sentence pairs of a prepared folder.

    RoBERTa's pairs have two ``</s>`` in the middle, the second as `separator_token`; BERT's have
    one. A folder that does not record the number is not checked.

    Raises:
        OptionError: the numbers differ.
    """
    folder = Path(cfg.data)
    separators = describe_data(folder).get("separators")
    given = 1 if cfg.separator_token is None else 2
    if (folder / "input1").is_dir() and separators not in (None, given):
        right = "null (<s> a </s> b </s>)" if separators == 1 else "2 (<s> a </s></s> b </s>)"
        raise OptionError(
            f"task.separator_token must be {right} with the tokenizer of {folder}, but is "
            f"{'null' if cfg.separator_token is None else cfg.separator_token}"
        )
