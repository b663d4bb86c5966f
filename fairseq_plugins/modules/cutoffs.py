"""Parsing of the cut-offs of adaptive inputs and softmax.

fairseq would evaluate the option as Python code, even when it comes from a checkpoint.
"""

import re

_NUMBERS = r"\s*[0-9]+(?:\s*,\s*[0-9]+)*\s*,?\s*"
_CUTOFFS = re.compile(rf"{_NUMBERS}|\[{_NUMBERS}\]|\({_NUMBERS}\)", re.ASCII)


def parse_cutoffs(name: str, text: str | None) -> list[int] | None:
    """Parse comma-separated integers, with or without brackets; None stays None.

    Raises:
        ValueError: anything else; the message names the option.
    """
    if text is None:
        return None
    if not _CUTOFFS.fullmatch(text.strip()):
        raise ValueError(
            f"`{name}` must be numbers joined by commas, as in 20000,60000, "
            f"but is {text!r} instead."
        )
    return [int(number) for number in re.findall("[0-9]+", text)]
