"""Tables have in them what they are given, to the character."""

from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.common.tables import columns, markdown_table

# As on the pages: what looks like a number stays as it is written.
NUMBERS = ["1.50", "-", "1e5", "nan", "0012", "1,234", "29.84 ± 0.04 (3)"]
WORDS = st.sampled_from(["a", "", "`x`", *NUMBERS])
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(WORDS, min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(ROWS, st.integers(0, 5))
def test_markdown_is_the_cells_between_bars(rows, left):
    header, *rest = rows
    lines = markdown_table(header, rest, left=left).split("\n")
    sides = ["---" if i < left else "---:" for i in range(len(header))]
    assert lines == ["| " + " | ".join(row) + " |" for row in (header, sides, *rest)]


def test_a_bar_in_a_cell_is_no_border():
    assert markdown_table(["x"], [["a|b"]]) == "| x |\n| --- |\n| a\\|b |"


@given(ROWS, st.integers(0, 5))
def test_columns_are_as_wide_as_their_longest_cell(rows, left):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for line, row in zip(columns(rows, left=left).split("\n"), rows, strict=True):
        cells = [
            word.ljust(width) if i < left else word.rjust(width)
            for i, (word, width) in enumerate(zip(row, widths, strict=True))
        ]
        assert line == "  ".join(cells).rstrip()
