"""Fields of fairseq's dataclasses of options."""

from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """Return the field of an option with its help."""
    return field(default=default, metadata={"help": text})
