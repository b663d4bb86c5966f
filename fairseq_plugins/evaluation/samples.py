"""Samples of a split and their losses, as in fairseq's own commands."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import tasks
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks.language_modeling import LanguageModelingConfig
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.evaluation.perplexity import Score, require_finite, token_bits
from fairseq_plugins.tasks.pe_masked_lm import MASKING, PEMaskedLMConfig

Batch = dict[str, Any]


def configure(seed: int, **sections: Any) -> Any:
    """Return fairseq's default options with a seed and the given sections."""
    config = OmegaConf.structured(FairseqConfig)
    config.common.seed = seed
    for name, section in sections.items():
        config[name] = section
    return config


class Samples(ABC):
    """A split in samples of limited length, cut by fairseq's task.

    Args:
        data: the data folder.
        split: train, valid or test.
        schema: the task's options.
        options: those of the training, by name.
        length: tokens of a sample, as fairseq counts them.
        seed: seed of the order and of masks.
        break_mode: how text is cut.
    """

    num_bos = 0  # leading tokens that fairseq counts in its sizes

    def __init__(
        self,
        data: Path,
        split: str,
        schema: type,
        options: dict[str, Any],
        *,
        length: int,
        seed: int,
        break_mode: str = "none",
    ) -> None:
        section: Any = OmegaConf.merge(OmegaConf.structured(schema), options)
        section.data, section.sample_break_mode = str(data), break_mode
        section.tokens_per_sample = length
        self.task = tasks.setup_task(configure(seed, task=section).task)
        self.task.load_dataset(split)
        self.dataset = self.task.dataset(split)
        self.longest = length - self.num_bos  # most scored tokens of a sample
        self.sizes = np.asarray(self.dataset.sizes).reshape(-1) - self.num_bos  # (N,)

    @property
    def tokens(self) -> int:
        """Count the tokens of the whole split."""
        return int(self.sizes.sum())

    @property
    def skipped(self) -> int:
        """Count the tokens of longer samples, which fairseq leaves out."""
        return int(self.sizes[self.sizes > self.longest].sum())

    @abstractmethod
    def batches(self, batch_size: int) -> Iterable[Batch]:
        """Iterate over batches of samples that are not too long, in a fixed order."""

    @abstractmethod
    def score(self, model: Any, batch: Batch) -> Score:
        """Compute the losses of a batch on the model's device.

        Raises:
            ValueError: a loss is not finite.
        """


class TextSamples(Samples):
    """Samples of a causal language model, as in ``fairseq-eval-lm``: every token has a loss.

    Args:
        data, split, more: as for `Samples`.
        trained: task options of the training.
        length: tokens of a sample with its context.
        context: unscored tokens before a sample.
    """

    def __init__(
        self, data: Path, split: str, trained: Any, *, length: int, context: int = 0, **more: Any
    ) -> None:
        options = {
            "_name": "language_modeling",
            "add_bos_token": trained.add_bos_token,
            "output_dictionary_size": trained.output_dictionary_size,
        }
        length -= context
        super().__init__(data, split, LanguageModelingConfig, options, length=length, **more)
        self._context, self._has_bos = context, bool(trained.add_bos_token)

    def batches(self, batch_size: int) -> Iterable[Batch]:
        return self.task.eval_lm_dataloader(
            dataset=self.dataset,
            max_tokens=None,
            batch_size=batch_size,
            max_positions=self.longest,
            num_workers=0,
            data_buffer_size=0,
            context_window=self._context,
        )

    def score(self, model: Any, batch: Batch) -> Score:
        target, dictionary = batch["target"], self.task.target_dictionary
        counted = target.ne(dictionary.pad())
        if self._has_bos:
            counted &= target.ne(dictionary.bos())
        output = model(**batch["net_input"])
        log_probs = model.get_normalized_probs(output, log_probs=True, sample=batch)
        bits, count = token_bits(log_probs, target, counted)
        return Score(bits, count, count)


class MaskedSamples(Samples):
    """Samples of a masked language model, as in validation: the masked tokens have a loss.

    Args:
        data, split, more: as for `Samples`; the length includes <s>.
        trained: task options of the training.

    Raises:
        DataError: the training masked whole words, but the data lacks its subwords.
        OptionError: the training was on pairs of segments.
    """

    num_bos = 1

    def __init__(self, data: Path, split: str, trained: Any, **more: Any) -> None:
        if trained.get("pairs"):
            raise OptionError(
                "the model must be trained without --pairs, but was trained on pairs of segments, "
                "which have other line ends; fairseq-validate measures it"
            )
        options = {"_name": "pe_masked_lm", **masking(trained)}
        super().__init__(data, split, PEMaskedLMConfig, options, **more)
        self._criterion = MaskedLmLoss(MaskedLmConfig(tpu=False), self.task).eval()

    def batches(self, batch_size: int) -> Iterable[Batch]:
        return self.task.get_batch_iterator(
            dataset=self.dataset,
            max_sentences=batch_size,
            max_positions=self.longest + self.num_bos,
            ignore_invalid_inputs=True,
        ).next_epoch_itr(shuffle=False)

    def score(self, model: Any, batch: Batch) -> Score:
        loss, predicted, _ = self.task.valid_step(batch, model, self._criterion)
        require_finite(loss)
        tokens = int(batch["ntokens"]) - int(batch["nsentences"]) * self.num_bos
        return Score(float(loss) / math.log(2), int(predicted), tokens)


def masking(trained: Any) -> dict[str, Any]:
    """Return the masking options of the training."""
    return {name: trained[name] for name in (*MASKING, "mask_whole_words")}
