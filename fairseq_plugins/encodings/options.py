"""Options of encodings: their types, and the words that give them."""

import typing
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Option:
    """One keyword of an encoding: its name, type (or the allowed words) and default."""

    name: str
    type: Any
    default: Any

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values of a ``Literal``; empty for other types."""
        return typing.get_args(self.type) if typing.get_origin(self.type) is Literal else ()

    @property
    def expected(self) -> str:
        """The type or the allowed values, in words."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return {bool: "true or false", int: "an integer", float: "a number"}.get(
            self.type, "a word"
        )


def convert(name: str, option: Option, value: Any) -> Any:
    """Convert a word or a Python value to the type of an option of the encoding ``name``.

    Raises:
        ValueError: another type, or a word that is not allowed.
    """
    failure = ValueError(
        f"{name}'s option `{option.name}` must be {option.expected}, but is {value!r} instead."
    )
    if option.choices:
        matches = [c for c in option.choices if str(c) == str(value)]
        if not matches:
            raise failure
        return matches[0]
    if option.type is bool:
        words = {"true": True, "false": False}
        if str(value).lower() not in words:
            raise failure
        return words[str(value).lower()]
    if isinstance(value, bool) and option.type in (int, float):
        raise failure
    try:
        converted = option.type(value)
    except (TypeError, ValueError, OverflowError):
        raise failure from None
    if option.type is int and isinstance(value, float) and converted != value:
        raise failure
    if option.type is int and abs(converted) >= 2**31:  # options are sizes
        raise ValueError(f"{failure} It must be below {2**31:,}.")
    return converted


def parse_options(text: str) -> dict[str, str]:
    """Read ``"p=identity rotated=all"`` into a mapping.

    Raises:
        ValueError: for a word without ``=`` or an option given twice.
    """
    result: dict[str, str] = {}
    for word in str(text).split():
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise ValueError(
                f"`position_encoding_options` must be words like `name=value`, but has {word!r}."
            )
        if key in result:
            raise ValueError(f"`position_encoding_options` must not give `{key}` twice.")
        result[key] = value
    return result
