"""Views of the BERT paper's Table 5 at each scale."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PROPERTIES, SOURCE
from fairseq_plugins.report.correlations import PAGE, Grid, explain, grid
from fairseq_plugins.statistics.comparisons import printed_cells
from fairseq_plugins.statistics.correlations import correlate, lost_columns
from fairseq_plugins.statistics.table_results import Evidence


@dataclass(frozen=True)
class CorrelationsView:
    """Table 5 at a scale.

    Attributes:
        lines: performance, its table, and a number for each property.
        notes: in Markdown.
        tables: names and pages of the correlated tables.
    """

    scale: str
    lines: Grid
    notes: Sequence[str]
    tables: Sequence[tuple[str, str]]
    properties: Sequence[str] = tuple(column.label for column in PROPERTIES)
    source: str = SOURCE

    @property
    def page(self) -> str:
        return f"{PAGE}-{self.scale}.html"

    @property
    def command(self) -> str:
        return f"fairseq-pe analyse correlations --scale {self.scale}"


def correlations_views(evidence: Evidence) -> list[CorrelationsView]:
    """Make the view of every scale with enough rows."""
    theirs = correlate({name: printed_cells(table) for name, table in TABLES.items()})
    names = dict.fromkeys(["bert_table2", *(table for table, _ in PERFORMANCES)])
    views = []
    for scale, numbers in evidence.numbers.items():
        ours = correlate(numbers.cells)
        if all(one.estimate is None for one in ours.values()):
            continue
        lost = lost_columns(numbers.cells, numbers.floors)
        notes = explain(ours, theirs, lost, numbers.cells)
        found = (evidence.find(name, scale) for name in names)
        tables = [(one.table.source, one.page) for one in found if one]
        views.append(CorrelationsView(scale, grid(ours), notes, tables))
    return views
