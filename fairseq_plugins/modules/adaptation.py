"""A trained model with another encoding when it is evaluated; nothing is trained.

That is how rotations are stretched to longer texts: Position Interpolation, NTK-aware scaling and
YaRN take the weights of a model that was trained with RoPE.
"""

from dataclasses import dataclass
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.encodings import expand_name, get_entry, parse_options
from fairseq_plugins.encodings.registry import split_options

STRETCH = "factor"  # the option of encodings that are stretched to longer sequences


@dataclass(frozen=True)
class Adaptation:
    """What of a model is another than in its training.

    Attributes:
        encoding: by name, under the attention of the training; empty for its own.
        options: of that encoding, as words.

    Raises:
        ValueError: an unknown encoding or option, or options of none.
    """

    encoding: str = ""
    options: str = ""

    def __post_init__(self) -> None:
        if self.options and not self.encoding:
            raise OptionError(f"--options must go with --encoding, but is {self.options!r} alone")
        if self.encoding:
            split_options(self.encoding, parse_options(self.options))

    def __bool__(self) -> bool:
        """Whether anything is another."""
        return bool(self.encoding)

    def apply(self, state: dict[str, Any], length: int, trained_length: int) -> None:
        """Enter it into a checkpoint that `read_trained` has read, in place.

        A `factor` that is not given is that of the length: Dynamic Scaling (YaRN, Section 3.3).

        Args:
            state: of the checkpoint.
            length: of the sequences that are to be read.
            trained_length: of those of the training.
        """
        if not self.encoding:
            return
        words = parse_options(self.options)
        factor = max(1.0, length / trained_length)
        parts = expand_name(self.encoding)
        for part in parts:
            key = STRETCH if len(parts) == 1 else f"{part}.{STRETCH}"
            if STRETCH in get_entry(part).options and not {key, f"{part}.{STRETCH}"} & {*words}:
                words[key] = str(factor)
        model = state["cfg"]["model"]
        model["position_encoding"] = self.encoding
        model["position_encoding_options"] = " ".join(f"{k}={v}" for k, v in words.items())


AS_TRAINED = Adaptation()
