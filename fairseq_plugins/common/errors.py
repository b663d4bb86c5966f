"""Error types; each is a ValueError."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataError(ValueError):
    """Unusable data: a file is missing, damaged, or of the wrong kind."""


class CheckpointError(ValueError):
    """Unusable checkpoint: missing, damaged, or of another model."""


class OptionError(ValueError):
    """Invalid value of an option, alone or together with others."""


class NoNumberError(ValueError):
    """Undefined result: an unsupported length, or losses that are not finite."""


class WorkError(ValueError):
    """Failure of started work, for reasons other than its input."""


@contextmanager
def checkpoint_given_by(option: str, must: str = "be a usable checkpoint") -> Iterator[None]:
    """Begin the message of a CheckpointError in the block with the option that gave the file.

    must: the requirement, after "must" in the message.
    """
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{option} must {must}, but {error}") from error
