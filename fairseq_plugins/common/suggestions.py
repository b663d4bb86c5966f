"""The nearest name to one that is unknown."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" to put behind a message, or nothing where no name is near."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.4)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""
