"""Longest sequence that a model accepts, in training and in evaluation."""

import functools
import sys
from typing import Any

from fairseq.models import BaseFairseqModel
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import nn

from fairseq_plugins.attention import Attention
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.encodings import PositionEncoding, PositionFacts

UNLIMITED = sys.maxsize


def longest_sequence(*parts: nn.Module) -> int:
    """Return the longest sequence that every encoding and attention in ``parts`` supports.

    Learned tables are limited to the positions they were built for. Linear attention is limited
    where its encoding would give negative weights. Other encodings have no limit.
    """
    ends = []
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, PositionEncoding):
            if not PositionFacts.of(module).extrapolates:
                ends.append(module.context.max_positions)
        elif isinstance(module, Attention) and module.span is not None:
            ends.append(module.span)
    return min(ends, default=UNLIMITED)


class LengthLimits(BaseFairseqModel):
    """Mixin that limits sequences by the training length, and after training by the encodings.

    fairseq drops sequences longer than ``max_positions()``. During training this is the configured
    length. Commands that evaluate or generate call ``prepare_for_inference_`` first; from then on
    only the encodings limit the length, so ``fairseq-eval-lm`` can score longer sequences.
    """

    is_prepared = False

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare as fairseq does, and lift the training length limit."""
        super().prepare_for_inference_(cfg)
        self.is_prepared = True

    def max_positions(self) -> Any:
        """Return the longest sequence; (source, target) for an encoder-decoder."""
        if not self.is_prepared:
            return super().max_positions()
        if not (hasattr(self, "encoder") and hasattr(self, "decoder")):
            return longest_sequence(self)
        between = [layer.encoder_attn for layer in self.decoder.layers]
        return longest_sequence(self.encoder, *between), longest_sequence(self.decoder)

    def max_decoder_positions(self) -> int:
        """Return the longest target that fairseq generates."""
        limits = self.max_positions()
        return int(limits[1] if isinstance(limits, tuple) else limits)


def refuse_dropped_blocks() -> None:
    """Make ``fairseq-eval-lm`` refuse blocks that are longer than the model supports.

    fairseq would drop them. With a learned table and fairseq's default length no tokens would be
    left, and the perplexity would be 1.
    """
    dataloader = LanguageModelingTask.eval_lm_dataloader

    @functools.wraps(dataloader)
    def checked(
        task: Any, dataset: Any, *args: Any, max_positions: int | None = None, **options: Any
    ) -> Any:
        length, limit = task.args.tokens_per_sample, max_positions
        # Where each line is a sample, the length has no effect.
        is_cut = str(task.args.sample_break_mode) != "eos" and limit is not None
        if is_cut and length > limit and dataset.sizes.max() > limit:
            raise OptionError(
                f"`tokens_per_sample` must be at most {limit}, the longest sequence of this model, "
                f"but is {length} instead; fairseq would leave out longer samples."
            )
        return dataloader(task, dataset, *args, max_positions=max_positions, **options)

    LanguageModelingTask.eval_lm_dataloader = checked
