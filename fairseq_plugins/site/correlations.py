"""Views of the BERT paper's Table 5 at each scale."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PRINTED, PROPERTIES, SOURCE
from fairseq_plugins.papers.tables import Column
from fairseq_plugins.report.correlations import DIGITS, PAGE, explain
from fairseq_plugins.report.differences import interval
from fairseq_plugins.statistics.correlations import Correlated, MetricPair, correlate, lost_columns
from fairseq_plugins.statistics.table_results import Evidence
from fairseq_plugins.statistics.verdicts import printed_cells


@dataclass(frozen=True)
class Number:
    """A correlation as shown and sorted; "" and None without one."""

    paper: str
    paper_order: float | None
    ours: str = ""
    order: float | None = None
    sure: str = ""
    is_apart: bool = False


@dataclass(frozen=True)
class CorrelationsView:
    """Table 5 at a scale.

    Attributes:
        properties: labels of the columns.
        lines: performance, its table, and a number for each property.
        facts: notes in Markdown.
        tables: names and pages of the correlated tables.
    """

    scale: str
    properties: Sequence[str]
    lines: Sequence[tuple[str, str, Sequence[Number]]]
    facts: Sequence[str]
    tables: Sequence[tuple[str, str]]
    source: str = SOURCE
    command: str = ""

    @property
    def page(self) -> str:
        return f"{PAGE}-{self.scale}.html"


def correlations_views(evidence: Evidence) -> list[CorrelationsView]:
    """Make the view of every scale with enough rows."""
    theirs = correlate({name: printed_cells(table) for name, table in TABLES.items()})
    views = []
    for scale, numbers in evidence.numbers.items():
        ours = correlate(numbers.cells)
        if all(one.estimate is None for one in ours.values()):
            continue
        names = dict.fromkeys(["bert_table2", *(table for table, _ in PERFORMANCES)])
        found = (evidence.find(name, scale) for name in names)
        views.append(
            CorrelationsView(
                scale=scale,
                properties=[column.label for column in PROPERTIES],
                lines=[
                    (
                        column.label,
                        TABLES[table].source,
                        [_number(own, column, ours) for own in PROPERTIES],
                    )
                    for table, column in PERFORMANCES
                ],
                facts=explain(
                    ours, theirs, lost_columns(numbers.cells, numbers.floors), numbers.cells
                ),
                tables=[(one.table.source, one.page) for one in found if one],
                command=f"fairseq-pe analyse correlations --scale {scale}",
            )
        )
    return views


def _number(own: Column, column: Column, ours: dict[MetricPair, Correlated]) -> Number:
    printed = PRINTED[own.metric].get(column.metric)
    paper, order = (f"{printed.mean:+.{DIGITS}f}", printed.mean) if printed else ("", None)
    estimate = ours[own.metric, column.metric].estimate
    if estimate is None:
        return Number(paper, order)
    return Number(
        paper,
        order,
        f"{estimate.effect:+.{DIGITS}f}",
        estimate.effect,
        interval(estimate, DIGITS),
        estimate.is_apart,
    )
