"""Error types; each is a ValueError."""


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
