"""Cut-offs of adaptive inputs and softmax, read as numbers.

fairseq evaluates such a word as Python, wherever it comes from: a checkpoint, too.
"""

import re

_NUMBERS = re.compile(r"\s*([0-9]+(?:\s*,\s*[0-9]+)*)\s*,?\s*", re.ASCII)
_BRACKETS = {"[": "]", "(": ")"}


def parse_cutoffs(name: str, text: str | None) -> list[int] | None:
    """Numbers joined by commas, with or without brackets around them; None stays None.

    Raises:
        ValueError: for anything else, with the option's name.
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
