"""Views of tables: a line for each row and attention."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_plugins.papers.tables import Table
from fairseq_plugins.report.captions import MOST_COLUMNS
from fairseq_plugins.report.lines import Line, lines_of
from fairseq_plugins.site.kinds import encoding_of, kind_of
from fairseq_plugins.statistics.judged import best_baseline
from fairseq_plugins.statistics.table_results import TableResults


@dataclass(frozen=True)
class SiteLine(Line):
    """A line with its encoding.

    page: page of its runs; "" without runs.
    """

    kind: str = ""
    encoding: str = ""
    page: str = ""


def cell_page(table: Table, scale: str, row: str, attention: str) -> str:
    """Return the name of the page with a cell's runs."""
    return f"run-{table.name}-{scale}-{row}-{attention}.html"


def site_lines(found: TableResults) -> list[SiteLine]:
    """List the paper's rows in its order, then others, under each attention."""
    encodings = {(r["row"], r["attention"]): encoding_of(r) for r in found.shown}
    lines = []
    for at, line in lines_of(found.judged).items():
        encoding = encodings.get(at, line.row)
        page = cell_page(found.table, found.scale, *at) if line.is_run else ""
        kind = kind_of(encoding)
        lines.append(SiteLine(**vars(line), kind=kind, encoding=encoding, page=page))
    return lines


def side_by_side(found: TableResults, lines: Sequence[SiteLine]) -> list[list[SiteLine | None]]:
    """Group lines by row, one line per attention; [] if the table would be too wide."""
    table = found.table
    if len(table.columns) > MOST_COLUMNS or len(table.attentions) != 2 or table.extra_attentions:
        return []
    by_row: dict[str, dict[str, SiteLine]] = {}
    for line in lines:
        by_row.setdefault(line.row, {})[line.attention] = line
    order = {name: i for i, name in enumerate(table.row_names)}
    names = sorted(by_row, key=lambda name: (order.get(name, len(order)), name))
    return [[by_row[name].get(attention) for attention in table.attentions] for name in names]


def baseline_texts(found: TableResults) -> list[str]:
    """Format each column's best baseline."""
    baselines = [(c, best_baseline(c, found.judged.baselines)) for c in found.table.columns]
    return [f"{c.label}: {f[1]:.{c.digits}f} ({f[0]})" for c, f in baselines if f is not None]
