"""Suggestions for unknown names."""

import difflib
from collections.abc import Iterable, Mapping


def did_you_mean(
    word: str, known: Iterable[str], meanings: Mapping[str, Iterable[str]] | None = None
) -> str:
    """Return " Did you mean 'x'?" for a message, or "" if no name is similar.

    Args:
        word: the unknown name.
        known: the valid names.
        meanings: synonyms of valid names; all names with the most similar synonym are suggested.
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
