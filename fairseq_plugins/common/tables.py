"""Tables as Markdown, as LaTeX and for a terminal."""

from collections.abc import Iterable, Sequence

from tabulate import DataRow, TableFormat, tabulate

DASH = "-"  # a cell without a number
_ROW = DataRow("| ", " | ", " |")
_LAYOUT = TableFormat(None, None, None, None, _ROW, _ROW, padding=0, with_header_hide=None)


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int | None = None
) -> str:
    """Format a table in Markdown without padding; `|` in cells is escaped.

    left: number of left-aligned columns, the rest being numbers; None for all.
    """
    rules = ["---" if left is None or i < left else "---:" for i in range(len(header))]
    cells = [[word.replace("|", "\\|") for word in row] for row in (header, rules, *rows)]
    return tabulate(cells, tablefmt=_LAYOUT, stralign=None, disable_numparse=True)


def columns(rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """Format aligned columns for a terminal; `left` as in `markdown_table`."""
    return tabulate(rows, tablefmt="plain", colalign=_sides(rows[0], left), disable_numparse=True)


def latex_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int | None = None
) -> str:
    """Format a booktabs tabular with special characters escaped; `left` as in `markdown_table`."""
    sides = _sides(header, left)
    layout = "latex_booktabs"
    return tabulate(rows, header, tablefmt=layout, colalign=sides, disable_numparse=True)


def _sides(row: Sequence[str], left: int | None) -> list[str]:
    words = len(row) if left is None else left
    return ["left" if i < words else "right" for i in range(len(row))]
