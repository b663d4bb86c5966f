"""Which encodings a stack of layers has, given the options of its model."""

from dataclasses import dataclass

from fairseq_plugins.encodings import (
    expand_name,
    get_entry,
    parse_options,
    with_absolute_embedding,
)


@dataclass(frozen=True)
class StackName:
    """The encodings of a stack.

    Attributes:
        given: what was asked for, with ``base`` replaced where it stands for another encoding.
        name: ``given`` with the absolute embedding that stays on beside it.
        options: of ``name``, as words.
    """

    given: str
    name: str
    options: dict[str, str]


def name_stack(given: str, options: str, *, absolute: str | None, base: str | None) -> StackName:
    """The encodings of a stack; the absolute embedding stays on as in the LRPE paper.

    Args:
        given: the option ``position_encoding``.
        options: the option ``position_encoding_options``.
        absolute: the framework's own embedding; None where it is off.
        base: what the name ``base`` stands for where that is another encoding.

    Raises:
        ValueError: an unknown name, or options that are no words ``name=value``.
    """
    if base is not None:
        given = "+".join(base if part == "base" else part for part in expand_name(given))
    name = with_absolute_embedding(given, absolute)
    words = parse_options(options)
    if name != given and "+" not in given:
        own = {f"{given}.{key}": value for key, value in words.items() if "." not in key}
        named = {key: value for key, value in words.items() if "." in key}
        if twice := own.keys() & named.keys():
            raise ValueError(
                f"`position_encoding_options` must not give `{min(twice)}` twice, with and without "
                f"`{given}.` before it."
            )
        words = own | named
    return StackName(given, name, words)


def acts_on_input(part: str) -> bool:
    """Whether an encoding acts on the input of layers, as absolute ones do."""
    return "embed" in get_entry(part).hooks
