"""Escaping of HTML in Markdown pages, since Markdown passes HTML through."""

import re
from pathlib import Path

from fairseq_plugins.common.files import write_text

# The beginning of a tag, except fairseq's special symbols.
_TAG = re.compile(r"<(?!(?:/?s|pad|unk|mask)>)(?=[A-Za-z/!?])")


def escape_html(page: str) -> str:
    """Escape every tag of a page, also in code, whose end a text might forge."""
    return _TAG.sub("&lt;", page)


def write_page(path: Path, page: str) -> None:
    """Write a Markdown page with escaped HTML, atomically."""
    write_text(path, escape_html(page))
