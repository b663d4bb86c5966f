"""Perplexity from summed losses: per token, per word and per byte of the text.

A loss is -log2 p, in bits. The sum over a text does not depend on how it is tokenised, so that it
can be divided by words or bytes as well.
"""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fairseq_plugins.common.errors import NoNumberError
from fairseq_plugins.data.raw_text import RawText


@dataclass(frozen=True)
class Score:
    """The losses of a batch, or of a split at one length."""

    bits: float  # sum of the losses
    predicted: int  # number of losses; of a masked model fewer than tokens
    tokens: int  # in the scored samples
    skipped: int = 0  # tokens in samples left out

    @property
    def is_whole(self) -> bool:
        """Return whether every token of the split has a loss."""
        return not self.skipped and self.predicted == self.tokens


def token_bits(log_probs: Tensor, target: Tensor, counted: Tensor) -> tuple[float, int]:
    """Sum losses in bits, in float64, and count them.

    Args:
        log_probs: (B, T, V), natural logarithms.
        target: (B, T) int64.
        counted: (B, T) bool, True where a token is scored.

    Raises:
        ValueError: a loss is not finite.
    """
    found = log_probs.gather(2, target.unsqueeze(2)).squeeze(2)[counted].double()
    require_finite(found)
    return float(-found.sum()) / math.log(2), len(found)


def require_finite(losses: Tensor) -> None:
    """Raise NoNumberError if a loss is not finite."""
    wrong = int((~losses.isfinite()).sum())
    if wrong:
        raise NoNumberError(f"{wrong} of {losses.numel()} losses of a batch are not finite")


def perplexity(bits: float) -> float | None:
    """Compute 2^bits; None on overflow."""
    try:
        return float(2.0**bits)
    except OverflowError:
        return None


def per_unit(bits: float, count: int | None) -> dict[str, float | None] | None:
    """Compute bits and perplexity per unit; None where the count is unknown."""
    if not count:
        return None
    return {"bits": bits / count, "perplexity": perplexity(bits / count)}


def summarise(score: Score, text: RawText) -> dict[str, Any]:
    """Return a score's JSON fields.

    Words and bytes are known for the whole split only: None where some tokens have no loss.
    """
    known = text if score.is_whole else RawText()
    return {
        "tokens": score.tokens,
        "skipped": score.skipped,
        "predicted": score.predicted,
        "per_token": per_unit(score.bits, score.predicted),
        "per_word": per_unit(score.bits, known.words),
        "per_byte": per_unit(score.bits, known.bytes),
    }
