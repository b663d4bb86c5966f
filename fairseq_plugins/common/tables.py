"""Tables of words and numbers, as Markdown and for a terminal."""

from collections.abc import Iterable, Sequence

from tabulate import DataRow, TableFormat, tabulate

_ROW = DataRow("| ", " | ", " |")
_LAYOUT = TableFormat(None, None, None, None, _ROW, _ROW, padding=0, with_header_hide=None)


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int | None = None
) -> str:
    """A table in Markdown, its cells as long as what is in them.

    Args:
        header: a word above each column.
        rows: cells in Markdown; a `|` in them is escaped.
        left: so many columns are words, and the rest are numbers on the right; None: all words.
    """
    rules = ["---" if left is None or i < left else "---:" for i in range(len(header))]
    cells = [[word.replace("|", "\\|") for word in row] for row in (header, rules, *rows)]
    return tabulate(cells, tablefmt=_LAYOUT, stralign=None, disable_numparse=True)


def columns(rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """Lines whose cells stand below each other, two spaces apart; `left` as above."""
    words = len(rows[0]) if left is None else left
    sides = ["left" if i < words else "right" for i in range(len(rows[0]))]
    return tabulate(rows, tablefmt="plain", colalign=sides, disable_numparse=True)


DASH = "-"  # a cell without a number
