"""Settings of a replaced position encoding, stored in ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_origin

KEY = "position_encoding"  # key in the configuration


@dataclass(frozen=True)
class EncodingSettings:
    """Position encoding and attention, as given to ``replace_position_encoding``."""

    name: str  # of the encoding, or several joined by ``+``
    attention: str = "vanilla"  # ``vanilla`` or ``linear``
    options: Mapping[str, Any] = field(default_factory=dict)
    attention_options: Mapping[str, Any] = field(default_factory=dict)
    keep_absolute: bool = False  # whether the model's own position table is kept
    max_positions: int = 1024  # longest sequence that the encoding is built for

    def __post_init__(self) -> None:
        for each in fields(self):
            kind: Any = get_origin(each.type) or each.type
            value = getattr(self, each.name)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise ValueError(
                    f"`{each.name}` of `{KEY}` must be {_WORDS[kind]}, but is {value!r} instead."
                )
        for name in ("options", "attention_options"):
            for option, value in getattr(self, name).items():
                if not isinstance(option, str) or not isinstance(value, (str, int, float, bool)):
                    raise ValueError(
                        f"`{option}` of `{KEY}` must be a word, a number, true or false, but is "
                        f"{value!r} instead."
                    )

    @classmethod
    def of(cls, config: Any) -> "EncodingSettings":
        """Read and check the settings in a configuration.

        Raises:
            ValueError: missing or invalid settings.
        """
        stored = getattr(config, KEY, None)
        if not isinstance(stored, dict):
            raise ValueError(
                f"`{KEY}` must be in the configuration of a {type(config).__name__}, as "
                f"replace_position_encoding writes it, but is {stored!r} instead."
            )
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in stored if name not in known]:
            raise ValueError(f"`{KEY}` must only have {known}, but has {unknown[0]!r}.")
        if "name" not in stored:
            raise ValueError(f"`{KEY}` must have the `name` of the encoding, but has none.")
        return cls(**stored)


_WORDS = {str: "a word", bool: "true or false", int: "an integer", Mapping: "options by name"}
