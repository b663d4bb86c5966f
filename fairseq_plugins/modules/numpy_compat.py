"""``numpy.compat.long``, which fairseq needs and NumPy 2 lacks."""

from types import SimpleNamespace
from typing import Any

import numpy


def restore_numpy_compat(module: Any = numpy) -> None:
    """Add ``numpy.compat.long``, by which fairseq sorts and cuts samples, where it is missing."""
    if not hasattr(module, "compat"):
        module.compat = SimpleNamespace(long=int)
