"""Errors with a meaning of their own."""


class DataError(ValueError):
    """Data that cannot be used: a file is missing, damaged, or not what it should be."""
