"""Resolution of a stack's encoding name and options."""

from dataclasses import dataclass

from fairseq_plugins.encodings import expand_name, parse_options, with_absolute_embedding


@dataclass(frozen=True)
class StackName:
    """Resolved encoding of a stack of layers."""

    given: str  # the requested name, with ``base`` replaced by the model's own absolute encoding
    name: str  # ``given`` plus the absolute embedding that stays active beside it
    options: dict[str, str]  # of ``name``, as strings


def name_stack(given: str, options: str, *, absolute: str | None, base: str | None) -> StackName:
    """Resolve the encoding of a stack; absolute embeddings stay on, as in the LRPE paper.

    Args:
        given: the option ``position_encoding``.
        options: the option ``position_encoding_options``.
        absolute: name of the framework's own embedding; None if it is off.
        base: encoding that the name ``base`` stands for; None for ``base`` itself.

    Raises:
        ValueError: unknown name, or options not of the form ``name=value``.
    """
    if base is not None:
        given = "+".join(base if part == "base" else part for part in expand_name(given))
    name = with_absolute_embedding(given, absolute)
    values = parse_options(options)
    if name != given and "+" not in given:
        prefixed = {f"{given}.{key}": value for key, value in values.items() if "." not in key}
        named = {key: value for key, value in values.items() if "." in key}
        if twice := prefixed.keys() & named.keys():
            raise ValueError(
                f"`position_encoding_options` must not give `{min(twice)}` twice, with and without "
                f"`{given}.` before it."
            )
        values = prefixed | named
    return StackName(given, name, values)
