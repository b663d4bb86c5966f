"""Task ``pe_sentence_prediction``: fairseq's ``sentence_prediction`` with batches by length."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fairseq.data import SortDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionTask,
)


@dataclass
class PESentencePredictionConfig(SentencePredictionConfig):
    """Options of fairseq's task, and how batches are made."""

    group_by_length: bool = field(
        default=False,
        metadata={"help": "batches of examples of similar length, in random order: less padding"},
    )


@register_task("pe_sentence_prediction", dataclass=PESentencePredictionConfig)
class PESentencePredictionTask(SentencePredictionTask):
    """fairseq's task, whose batches may have examples of similar length."""

    cfg: PESentencePredictionConfig

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Load a split; training shuffles its batches in every epoch."""
        dataset = super().load_dataset(split, combine=combine, **kwargs)
        if self.cfg.group_by_length:
            with data_utils.numpy_seed(self.cfg.seed):
                shuffle = np.random.permutation(len(dataset))
            lengths = np.array([dataset.num_tokens(i) for i in range(len(dataset))])
            dataset = SortDataset(dataset, sort_order=[shuffle, lengths])
            self.datasets[split] = dataset
        return dataset
