"""The nearest names to one that is unknown."""

import difflib
from collections.abc import Iterable, Mapping


def did_you_mean(
    word: str, known: Iterable[str], meanings: Mapping[str, Iterable[str]] | None = None
) -> str:
    """The words "Did you mean 'x'?" to put behind a message, or nothing where no name is near.

    Args:
        word: the unknown name.
        known: the names that there are.
        meanings: other words for known names. Those that ``word`` is another word for are all
            given; else the one name that is spelt most like it, or has a word that is.
    """
    names: dict[str, list[str]] = {_folded(name): [name] for name in known}
    for name, others in (meanings or {}).items():
        for other in others:
            names.setdefault(_folded(other), []).append(name)
    near = difflib.get_close_matches(_folded(word), names, n=1, cutoff=0.4)
    if not near:
        return ""
    *first, last = (repr(name) for name in names[near[0]])
    return f" Did you mean {', '.join(first)}{' or ' * bool(first)}{last}?"


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
