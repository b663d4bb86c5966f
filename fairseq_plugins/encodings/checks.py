"""Checks of sizes and options that several encodings share."""

import math

from fairseq_plugins.encodings.base import EncodingContext


def check_even(name: str, value: int) -> None:
    """Check that a number of features is even.

    Raises:
        ValueError: for an odd ``value``; ``name`` is its name.
    """
    if value % 2:
        raise ValueError(f"`{name}` must be even, but is {value} instead.")


def check_at_least(least: int, name: str, value: int) -> None:
    """Check the lower bound of a size.

    Raises:
        ValueError: for a ``value`` below ``least``; ``name`` is its name.
    """
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, but is {value} instead.")


def check_stretching(factor: float) -> None:
    """Check the factor by which sequences are longer than in training.

    Raises:
        ValueError: for a ``factor`` below 1 or infinite.
    """
    if not 1.0 <= factor < math.inf:
        raise ValueError(f"`factor` must be finite and at least 1, but is {factor} instead.")


def length_or_longest(name: str, length: int, context: EncodingContext) -> int:
    """Return a length given as an option, or ``max_positions`` if it is 0.

    Raises:
        ValueError: for a negative ``length``; ``name`` is its name.
    """
    if length < 0:
        raise ValueError(
            f"`{name}` must be positive, or 0 for max_positions={context.max_positions}, "
            f"but is {length} instead."
        )
    return length or context.max_positions
