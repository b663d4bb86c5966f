"""Sentences that list the names for which a statement holds, each with its number."""

from collections.abc import Callable, Mapping

NAMED = 3  # with more names than this, and than on the other side, only a range is given
_OF_ALL = {"true of": "true of all", "not of": "true of none of"}


def sentences(*texts: str) -> str:
    """Join the sentences that are not empty."""
    return " ".join(filter(None, texts))


def signs(found: Mapping[str, float], *, below: bool = False) -> dict[str, tuple[bool, str]]:
    """Return whether each number is above 0 (or below), with the formatted number."""
    return {
        name: (value < 0 if below else value > 0, f"{value:+.3g}") for name, value in found.items()
    }


def summarise(statement: str, found: Mapping[str, tuple[bool, str]]) -> str:
    """List the names for which a statement holds and the others; "" without names."""
    parts = []
    for wanted, word in ((True, "true of"), (False, "not of")):
        names = [
            f"`{name}` ({number})" for name, (is_so, number) in found.items() if is_so == wanted
        ]
        parts += [f"{word} {', '.join(names)}"] if names else []
    return f"{statement}: {'; '.join(parts)}." if parts else ""


def summarise_values(
    statement: str, values: Mapping[str, float], holds: Callable[[float], bool], form: str = ".3g"
) -> str:
    """List the names for which a statement holds and the others, each with its value.

    More than `NAMED` names become a range of values if they are more than on the other side.
    """
    so = {name: value for name, value in values.items() if holds(value)}
    others = {name: value for name, value in values.items() if name not in so}
    parts = []
    for word, side, other in (("true of", so, others), ("not of", others, so)):
        if not side:
            continue
        named = ", ".join(f"`{name}` ({value:{form}})" for name, value in side.items())
        text = f"{word} {named}"
        if len(side) > max(NAMED, len(other)):
            whose = f"{word} the other" if other else _OF_ALL[word]
            least, most = (f"{value:{form}}" for value in (min(side.values()), max(side.values())))
            text = f"{whose} {len(side)} ({least} to {most})"
        parts.append(text)
    return f"{statement}: {'; '.join(parts)}." if parts else ""
