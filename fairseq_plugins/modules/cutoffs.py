"""Parsing of the cut-offs of adaptive inputs and softmax.

fairseq would evaluate the option as Python code, even when it comes from a checkpoint.
"""

import re

_NUMBERS = re.compile(r"\s*([0-9]+(?:\s*,\s*[0-9]+)*)\s*,?\s*", re.ASCII)
_BRACKETS = {"[": "]", "(": ")"}


def parse_cutoffs(name: str, text: str | None) -> list[int] | None:
    """Parse comma-separated integers, with or without brackets; None stays None.

    Raises:
        ValueError: anything else; the message names the option.
    """
    if text is None:
        return None
    inner = text.strip()
    if inner[:1] in _BRACKETS and inner.endswith(_BRACKETS[inner[:1]]):
        inner = inner[1:-1]
    match = _NUMBERS.fullmatch(inner)
    if match is None:
        raise ValueError(
            f"`{name}` must be numbers joined by commas, as in 20000,60000, "
            f"but is {text!r} instead."
        )
    return [int(number) for number in match[1].split(",")]
