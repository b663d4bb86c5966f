"""Settings of beam search."""

from dataclasses import dataclass
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.data.options import check_at_least

# Powers of a length with larger exponents are beyond the range of floats.
_LARGEST_PENALTY = 10


@dataclass(frozen=True)
class Decoding:
    """Settings of beam search, by default those of Vaswani et al. 2017.

    beam: hypotheses kept. length_penalty: exponent of the length by which scores are divided.
    longer_ratio, longer: a hypothesis has at most longer_ratio * length + longer tokens, with the
    length of the batch's longest source. max_tokens: source tokens per batch.

    Raises:
        OptionError: a value is out of range.
    """

    beam: int = 4
    length_penalty: float = 0.6
    longer_ratio: float = 1.0
    longer: int = 50
    max_tokens: int = 4000

    def __post_init__(self) -> None:
        check_at_least(1, beam=self.beam, longer=self.longer, max_tokens=self.max_tokens)
        if not abs(self.length_penalty) <= _LARGEST_PENALTY:  # NaN too
            raise OptionError(
                f"--length-penalty must be from {-_LARGEST_PENALTY} to {_LARGEST_PENALTY}, but is "
                f"{self.length_penalty}"
            )

    def generation(self) -> dict[str, Any]:
        """Return fairseq's generation options."""
        return {
            "beam": self.beam,
            "lenpen": self.length_penalty,
            "max_len_a": self.longer_ratio,
            "max_len_b": self.longer,
        }
