"""Settings of a translation model's search."""

import itertools
from dataclasses import dataclass
from typing import Any

from fairseq_plugins.common.errors import OptionError


@dataclass(frozen=True)
class Decoding:
    """Settings of a search; the defaults are those of Vaswani et al. 2017.

    beam: hypotheses kept. length_penalty: the score is divided by length ** this. A hypothesis
    has at most longer_ratio * source length + longer tokens, where fairseq takes the length of the
    longest source of a batch. max_tokens: per batch.

    Raises:
        OptionError: for a value out of range.
    """

    beam: int = 4
    length_penalty: float = 0.6
    longer_ratio: float = 1.0
    longer: int = 50
    max_tokens: int = 4000

    def __post_init__(self) -> None:
        for name in ("beam", "longer", "max_tokens"):
            if getattr(self, name) < 1:
                raise OptionError(
                    f"`{name}` must be at least 1, but is {getattr(self, name)} instead."
                )

    def generation(self) -> dict[str, Any]:
        """The same as fairseq's options of generation."""
        return {
            "beam": self.beam,
            "lenpen": self.length_penalty,
            "max_len_a": self.longer_ratio,
            "max_len_b": self.longer,
        }

    def flags(self) -> list[str]:
        """The same for fairseq-generate, which then prints whole words of every sentence.

        Its default, batches of a multiple of 8 sentences, leaves out those beyond the last one.
        """
        named = {**self.generation(), "max_tokens": self.max_tokens}
        named["required_batch_size_multiple"] = 1
        words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in named.items()]
        return [*itertools.chain.from_iterable(words), "--remove-bpe"]
