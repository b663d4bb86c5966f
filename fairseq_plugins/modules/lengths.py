"""Longest sequence that a model accepts, in training and in evaluation."""

import functools
import sys
from typing import Any

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
