"""How long a sequence a model can read, in training and afterwards."""

import sys
from typing import Any

from fairseq.models import BaseFairseqModel
from torch import nn

from fairseq_plugins.attention import Attention
from fairseq_plugins.encodings import PositionEncoding, PositionFacts

UNLIMITED = sys.maxsize


def longest_sequence(*parts: nn.Module) -> int:
    """The longest sequence that every encoding and attention in ``parts`` has a meaning for.

    Learned tables end with the positions that they were built for, and linear attention with an
    encoding whose weights are negative further apart ends there; the others have no end.
    """
    ends = []
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, PositionEncoding):
            if not PositionFacts.of(module).extrapolates:
                ends.append(module.context.max_positions)
        elif isinstance(module, Attention) and module.span is not None:
            ends.append(module.span)
    return min(ends, default=UNLIMITED)


class AnyLength(BaseFairseqModel):
    """Part of a model that, once it is trained, reads whatever its encodings have a meaning for.

    fairseq asks a model for its longest sequence and leaves longer ones out. While it is trained
    that is what it is configured for, so that the samples are those of that length. Commands that
    evaluate or generate prepare a model for inference first; from then on the limit is that of its
    encodings, so that ``fairseq-eval-lm`` scores a length that the model was not trained at.
    """

    is_prepared = False

    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq does; and read any length from now on."""
        super().prepare_for_inference_(cfg)
        self.is_prepared = True

    def max_positions(self) -> Any:
        """The longest sequence, of an encoder-decoder (source, target)."""
        if not self.is_prepared:
            return super().max_positions()
        if not (hasattr(self, "encoder") and hasattr(self, "decoder")):
            return longest_sequence(self)
        between = [layer.encoder_attn for layer in self.decoder.layers]
        return longest_sequence(self.encoder, *between), longest_sequence(self.decoder)

    def max_decoder_positions(self) -> int:
        """The longest target, up to which fairseq generates."""
        limits = self.max_positions()
        return int(limits[1] if isinstance(limits, tuple) else limits)
