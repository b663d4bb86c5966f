"""Sentences on what is so of which names, with a number each."""

from collections.abc import Callable, Mapping

NAMED = 3  # where more names are on one side of a limit than on the other, they are counted
_OF_ALL = {"so": "so for all", "not": "for none of"}


def sentences(*found: str) -> str:
    """Return the sentences that are not empty."""
    return " ".join(filter(None, found))


def signs(found: Mapping[str, float], *, below: bool = False) -> dict[str, tuple[bool, str]]:
    """Return whether each number is above 0, or below, with the number."""
    return {
        name: (value < 0 if below else value > 0, f"{value:+.3g}") for name, value in found.items()
    }


def said(what: str, found: Mapping[str, tuple[bool, str]]) -> str:
    """Of what something is so and of what it is not, with a number each; "" of nothing."""
    if not found:
        return ""
    parts = []
    for wanted, word in ((True, "so"), (False, "not")):
        names = [
            f"`{name}` ({number})" for name, (is_so, number) in found.items() if is_so == wanted
        ]
        parts += [f"{word} for {', '.join(names)}"] if names else []
    return f"{what}: {'; '.join(parts)}."


def said_where(
    what: str, values: Mapping[str, float], holds: Callable[[float], bool], form: str = ".3g"
) -> str:
    """The same by a test of each number; where there are many, the more of both sides as a range.

    form: of a number.
    """
    if not values:
        return ""
    so = {name: value for name, value in values.items() if holds(value)}
    others = {name: value for name, value in values.items() if name not in so}
    parts = []
    for word, own, other in (("so", so, others), ("not", others, so)):
        if not own:
            continue
        named = ", ".join(f"`{name}` ({value:{form}})" for name, value in own.items())
        text = f"{word} for {named}"
        if len(own) > max(NAMED, len(other)):
            whose = f"{word} for the other" if other else _OF_ALL[word]
            least, most = (f"{value:{form}}" for value in (min(own.values()), max(own.values())))
            text = f"{whose} {len(own)} ({least} to {most})"
        parts.append(text)
    return f"{what}: {'; '.join(parts)}."
