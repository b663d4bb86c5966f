"""Markup in files that pages are made of: Markdown passes HTML on as it is."""

import re
from collections.abc import Mapping
from typing import Any

# The beginning of a tag, which fairseq's special symbols are not.
_TAG = re.compile(r"<(?!(?:/?s|pad|unk|mask)>)[A-Za-z/!?]")


def refuse_markup(value: Any, place: str = "") -> None:
    """Refuse a file whose texts or names would be HTML on a page.

    Args:
        value: what was read from JSON.
        place: the keys that lead to it, for the message.

    Raises:
        ValueError: naming the keys.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_markup(key, place)
            refuse_markup(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            refuse_markup(inner, place)
    elif isinstance(value, str) and _TAG.search(value):
        raise ValueError(f"{place}: a text of a result may not hold HTML")
