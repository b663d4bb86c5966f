"""A split cut into samples, and their losses, as fairseq's own commands have them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fairseq import tasks
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks.language_modeling import LanguageModelingConfig
from omegaconf import OmegaConf

from fairseq_plugins.evaluation.perplexity import require_finite, token_bits
from fairseq_plugins.tasks.pe_masked_lm import MASKING, PEMaskedLMConfig

Batch = dict[str, Any]


class BatchScore(NamedTuple):
    """The losses of a batch: their sum in bits, how many there are, and the batch's tokens."""

    bits: float
    predicted: int
    tokens: int


def configure(seed: int, **sections: Any) -> Any:
    """fairseq's options: its defaults but for the seed and sections that are given."""
    config = OmegaConf.structured(FairseqConfig)
    config.common.seed = seed
    for name, section in sections.items():
        config[name] = section
    return config


class Samples(ABC):
    """A split in samples of some tokens at most.

    Args:
        task: fairseq's, set up to cut text so.
        split: its name.
        longest: tokens of a sample that are scored at most.
        begins: tokens in front of them that fairseq counts in its sizes.
    """

    def __init__(self, task: Any, split: str, *, longest: int, begins: int) -> None:
        task.load_dataset(split)
        self.task, self.dataset = task, task.dataset(split)
        self.longest, self.begins = longest, begins
        self.sizes = np.asarray(self.dataset.sizes).reshape(-1) - begins  # (N,)

    @property
    def tokens(self) -> int:
        """Count the tokens of the whole split."""
        return int(self.sizes.sum())

    @property
    def skipped(self) -> int:
        """Tokens of the samples that are longer: fairseq leaves them out."""
        return int(self.sizes[self.sizes > self.longest].sum())

    @abstractmethod
    def batches(self, batch_size: int) -> Iterable[Batch]:
        """The samples that are not too long, always in the same order."""

    @abstractmethod
    def score(self, model: Any, batch: Batch) -> BatchScore:
        """The losses of a batch that lies on the model's device.

        Raises:
            ValueError: one that is not finite.
        """


class TextSamples(Samples):
    """What a language model reads, as in ``fairseq-eval-lm``: every token has a loss.

    Args:
        data: the folder.
        split: its name.
        trained: options of the task that the model was trained for.
        length: tokens of a sample with those before it.
        context: tokens before a sample, which are read once more but not scored.
        break_mode: how text is cut.
        seed: of the order.
    """

    def __init__(
        self,
        data: Path,
        split: str,
        trained: Any,
        *,
        length: int,
        context: int,
        break_mode: str,
        seed: int,
    ) -> None:
        options = {
            "_name": "language_modeling",
            "data": str(data),
            "tokens_per_sample": length - context,
            "sample_break_mode": break_mode,
            "add_bos_token": trained.add_bos_token,
            "output_dictionary_size": trained.output_dictionary_size,
        }
        section = OmegaConf.merge(OmegaConf.structured(LanguageModelingConfig), options)
        task = tasks.setup_task(configure(seed, task=section).task)
        super().__init__(task, split, longest=length - context, begins=0)
        self._context, self._has_bos = context, bool(trained.add_bos_token)

    def batches(self, batch_size: int) -> Iterable[Batch]:
        found: Iterable[Batch] = self.task.eval_lm_dataloader(
            dataset=self.dataset,
            max_tokens=None,
            batch_size=batch_size,
            max_positions=self.longest,
            num_workers=0,
            data_buffer_size=0,
            context_window=self._context,
        )
        return found

    def score(self, model: Any, batch: Batch) -> BatchScore:
        target, dictionary = batch["target"], self.task.target_dictionary
        counted = target.ne(dictionary.pad())
        if self._has_bos:  # which every sample begins with
            counted &= target.ne(dictionary.bos())
        output = model(**batch["net_input"])
        log_probs = model.get_normalized_probs(output, log_probs=True, sample=batch)
        bits, count = token_bits(log_probs, target, counted)
        return BatchScore(bits, count, count)


class MaskedSamples(Samples):
    """What a masked language model reads, as where it is validated: the masked tokens have a loss.

    Args:
        data, split, trained, seed: as of a language model; the seed is that of the masks, too.
        length: tokens of a sample with the <s> in front.
        break_mode: how text is cut.

    Raises:
        DataError: a training that masked whole words, and data without the pieces they are made of.
    """

    def __init__(
        self, data: Path, split: str, trained: Any, *, length: int, break_mode: str, seed: int
    ) -> None:
        options = {
            "_name": "pe_masked_lm",
            "data": str(data),
            "tokens_per_sample": length,
            "sample_break_mode": break_mode,
            **masking(trained),
        }
        section = OmegaConf.merge(OmegaConf.structured(PEMaskedLMConfig), options)
        task = tasks.setup_task(configure(seed, task=section).task)
        super().__init__(task, split, longest=length - 1, begins=1)
        self._criterion = MaskedLmLoss(MaskedLmConfig(tpu=False), task).eval()

    def batches(self, batch_size: int) -> Iterable[Batch]:
        found: Iterable[Batch] = self.task.get_batch_iterator(
            dataset=self.dataset,
            max_sentences=batch_size,
            max_positions=self.longest + self.begins,
            ignore_invalid_inputs=True,
        ).next_epoch_itr(shuffle=False)
        return found

    def score(self, model: Any, batch: Batch) -> BatchScore:
        loss, predicted, _ = self.task.valid_step(batch, model, self._criterion)
        require_finite(loss)
        tokens = int(batch["ntokens"]) - int(batch["nsentences"]) * self.begins
        return BatchScore(float(loss) / math.log(2), int(predicted), tokens)


def masking(trained: Any) -> dict[str, Any]:
    """Return how training masked tokens, from its task's options, to do the same in evaluation."""
    return {name: trained[name] for name in (*MASKING, "mask_whole_words")}
