"""Perplexity from summed losses: per unit of the data, per word and per byte of its text.

A loss is -log2 p, in bits. The bits of a text are what its tokens cost together, so they can be
shared out over its words or its bytes as well, whatever pieces the data is in.
"""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fairseq_plugins.common.errors import NoNumberError
from fairseq_plugins.data.raw_text import RawText


@dataclass(frozen=True)
class Score:
    """The losses of a split at one length.

    Attributes:
        bits: their sum.
        predicted: tokens that have a loss: of a masked model a part of them.
        tokens: tokens in the samples that were scored.
        skipped: tokens in samples that were left out.
    """

    bits: float
    predicted: int
    tokens: int
    skipped: int

    @property
    def is_whole(self) -> bool:
        """Return whether every token of the split has a loss, so that its bits are of all text."""
        return not self.skipped and self.predicted == self.tokens


def token_bits(log_probs: Tensor, target: Tensor, counted: Tensor) -> tuple[float, int]:
    """The sum of the losses in bits, in float64, and how many there are.

    Args:
        log_probs: (B, T, V), natural logarithms.
        target: (B, T) int64.
        counted: (B, T) bool, True where a token is scored.

    Raises:
        ValueError: a loss that is not finite, which no mean can hold.
    """
    found = log_probs.gather(2, target.unsqueeze(2)).squeeze(2)[counted].double()
    require_finite(found)
    return float(-found.sum()) / math.log(2), len(found)


def require_finite(losses: Tensor) -> None:
    """Raise NoNumberError where a loss is not finite, which no perplexity can hold."""
    wrong = int((~losses.isfinite()).sum())
    if wrong:
        raise NoNumberError(f"{wrong} of {losses.numel()} losses of a batch are not finite")


def perplexity(bits: float) -> float | None:
    """2^bits; None where no float can hold it."""
    try:
        return float(2.0**bits)
    except OverflowError:
        return None


def per(bits: float, count: int | None) -> dict[str, float | None] | None:
    """Bits and perplexity for each of so many units; None where the number is not known."""
    if not count:
        return None
    return {"bits": bits / count, "perplexity": perplexity(bits / count)}


def summarise(score: Score, text: RawText) -> dict[str, Any]:
    """A score as a result holds it; None is unknown.

    Words and bytes count those of the whole split, so that they are unknown where only a part of
    its tokens has a loss.
    """
    known = text if score.is_whole else RawText()
    return {
        "tokens": score.tokens,
        "skipped": score.skipped,
        "predicted": score.predicted,
        "per_token": per(score.bits, score.predicted),
        "per_word": per(score.bits, known.words),
        "per_byte": per(score.bits, known.bytes),
    }
