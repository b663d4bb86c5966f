"""What was put into a model, in the words of its ``config.json``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

KEY = "position_encoding"  # of the configuration


@dataclass(frozen=True)
class EncodingSettings:
    """A position encoding and an attention, as ``replace_position_encoding`` is given them.

    Attributes:
        name: of the encoding, or of several joined by ``+``.
        attention: ``vanilla`` or ``linear``.
        options: the encoding's.
        attention_options: the attention's.
        keep_absolute: whether the model's own table of positions stays beside it.
        max_positions: longest sequence that it is built for.
    """

    name: str
    attention: str = "vanilla"
    options: Mapping[str, Any] = field(default_factory=dict)
    attention_options: Mapping[str, Any] = field(default_factory=dict)
    keep_absolute: bool = False
    max_positions: int = 1024

    def __post_init__(self) -> None:
        for what, kind in _KINDS.items():
            value = getattr(self, what)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise ValueError(
                    f"`{what}` of `{KEY}` must be {_WORDS[kind]}, but is {value!r} instead."
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
        """Read them from a configuration.

        Raises:
            ValueError: they are missing or damaged.
        """
        said = getattr(config, KEY, None)
        if not isinstance(said, dict):
            raise ValueError(
                f"`{KEY}` must be in the configuration of a {type(config).__name__}, as "
                f"replace_position_encoding writes it, but is {said!r} instead."
            )
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in said if name not in known]:
            raise ValueError(f"`{KEY}` must be made of {known}, but has {unknown[0]!r}.")
        if "name" not in said:
            raise ValueError(f"`{KEY}` must say the `name` of the encoding, but does not.")
        return cls(**said)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        said = asdict(self)
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in said.items()}


_KINDS: dict[str, type] = {
    "name": str,
    "attention": str,
    "options": Mapping,
    "attention_options": Mapping,
    "keep_absolute": bool,
    "max_positions": int,
}
_WORDS = {str: "a word", bool: "true or false", int: "an integer", Mapping: "options by name"}
