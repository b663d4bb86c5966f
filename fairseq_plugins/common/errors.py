"""Errors with a meaning of their own; each is a ValueError."""


class DataError(ValueError):
    """Data that cannot be used: a file is missing, damaged, or not what it should be."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: missing, damaged, or of something else."""


class OptionError(ValueError):
    """An option whose value it cannot have, alone or beside the others."""


class NoNumberError(ValueError):
    """A length without a meaning, or losses that are not finite: no number can be given."""


class WorkError(ValueError):
    """Work that was begun and failed, for reasons other than its input."""
