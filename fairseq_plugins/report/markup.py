"""Markdown pages on which no text of a result is HTML: Markdown passes HTML on as it is."""

import re
from pathlib import Path

from fairseq_plugins.common.files import write_text

# The beginning of a tag, which fairseq's special symbols are not.
_TAG = re.compile(r"<(?!(?:/?s|pad|unk|mask)>)(?=[A-Za-z/!?])")


def escape_html(page: str) -> str:
    """Escape every tag of a page, none of which has HTML of its own.

    In code too: where code ends is for a parser to say, and a text may be made to mislead it.
    """
    return _TAG.sub("&lt;", page)


def write_page(path: Path, page: str) -> None:
    """Write a Markdown page whole, its HTML escaped."""
    write_text(path, escape_html(page))
