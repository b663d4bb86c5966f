"""Views of tables: a line for each row and attention."""

from collections.abc import Mapping
from dataclasses import dataclass

from fairseq_plugins.papers.tables import ATTENTIONS, Table
from fairseq_plugins.report.captions import caption
from fairseq_plugins.report.differences import interval, probability
from fairseq_plugins.report.render import cell_text, comparisons
from fairseq_plugins.site.kinds import encoding_of, kind_of
from fairseq_plugins.statistics.comparisons import mean
from fairseq_plugins.statistics.floors import best_floor
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.table_results import TableResults

REFERENCE, ALONE, NOT_RUN = "reference", "no reference", "not run"  # besides verdicts


@dataclass(frozen=True)
class Number:
    """A number of a cell.

    Attributes:
        paper, ours: texts, or "".
        order, paper_order: sort keys.
        mark: whether ours differs significantly from the reference.
        below_floor: whether ours is not significantly better than the best baseline.
    """

    paper: str = ""
    ours: str = ""
    order: float | None = None
    paper_order: float | None = None
    mark: bool = False
    below_floor: bool = False


@dataclass(frozen=True)
class Line:
    """A row under an attention.

    Attributes:
        page: page of its runs; "" without runs.
        numbers: numbers in the order of the table's columns.
        verdict: verdict against the reference in the ranking column.
        effect, sure: that difference and its interval, as text.
    """

    row: str
    label: str
    group: str
    kind: str
    encoding: str
    attention: str
    page: str
    numbers: tuple[Number, ...]
    verdict: str
    effect: str = ""
    sure: str = ""
    p: str = ""
    effect_order: float | None = None
    seeds: int = 0


def cell_page(table: Table, scale: str, row: str, attention: str) -> str:
    """Return the name of the page with a cell's runs."""
    return f"run-{table.name}-{scale}-{row}-{attention}.html"


def lines_of(found: TableResults) -> list[Line]:
    """List the paper's rows in its order, then others, under each attention."""
    table, judged = found.table, found.judged
    encodings = {(r["row"], r["attention"]): encoding_of(r) for r in found.shown}
    lines = []
    for attention in [*table.attentions, *table.extra_attentions]:
        compared = {c.metric: judged.against(attention, c.metric) for c in table.columns}
        own = {row for row, a in judged.cells if a == attention}
        printed = [row.name for row in table.rows if attention in row.paper]
        names = [*printed, *sorted(own - set(printed))]
        floors = _floors(found, attention)
        for name in names:
            encoding = encodings.get((name, attention), name)
            estimates = {metric: rows.get(name) for metric, rows in compared.items()}
            lines.append(_line(found, name, attention, encoding, estimates, floors))
    return lines


def _line(
    found: TableResults,
    name: str,
    attention: str,
    encoding: str,
    estimates: Mapping[str, Estimate | None],
    floors: Mapping[str, set[str]],
) -> Line:
    table, row = found.table, found.table.row(name)
    estimate = estimates[table.ranked_by.metric]
    cell = found.judged.cells.get((name, attention))
    numbers = []
    for column in table.columns:
        seeds = (cell or {}).get(column.metric)
        printed = row.paper.get(attention, {}).get(column.metric)
        numbers.append(
            Number(
                paper=printed.text(column.digits) if printed else "",
                ours=cell_text(seeds, column.digits) if seeds else "",
                order=mean(seeds.values()) if seeds else None,
                paper_order=printed.mean if printed else None,
                mark=(one := estimates[column.metric]) is not None and one.is_apart,
                below_floor=bool(seeds) and name in floors.get(column.metric, set()),
            )
        )
    digits = table.ranked_by.digits
    return Line(
        row=name,
        label=row.label,
        group=row.group or "beyond the paper",
        kind=kind_of(encoding),
        encoding=encoding,
        attention=attention,
        page=cell_page(table, found.scale, name, attention) if cell else "",
        numbers=tuple(numbers),
        verdict=_verdict(found, name, estimate, is_run=cell is not None),
        effect=f"{estimate.effect:+.{digits}f}" if estimate else "",
        sure=interval(estimate, digits) if estimate and estimate.low is not None else "",
        p=probability(estimate.adjusted) if estimate and estimate.adjusted is not None else "",
        effect_order=estimate.effect if estimate else None,
        seeds=max((len(seeds) for seeds in (cell or {}).values()), default=0),
    )


def _verdict(found: TableResults, name: str, estimate: Estimate | None, *, is_run: bool) -> str:
    if not is_run:
        return NOT_RUN
    if name == found.table.reference:
        return REFERENCE
    return ALONE if estimate is None else found.judged.verdict(estimate)


def _floors(found: TableResults, attention: str) -> dict[str, set[str]]:
    """Return the rows of each metric that are not better than the best baseline."""
    result = {}
    for column in found.table.columns:
        floor = best_floor(column, found.judged.floors)
        if floor is not None:
            better = set(found.judged.rows_above(attention, column, floor[1]))
            rows = {row for row, a in found.judged.cells if a == attention}
            result[column.metric] = rows - better
    return result


def floor_texts(found: TableResults) -> list[str]:
    """Format each column's best baseline."""
    texts = []
    for column in found.table.columns:
        floor = best_floor(column, found.judged.floors)
        if floor is not None:
            texts.append(f"{column.label}: {floor[1]:.{column.digits}f} ({floor[0]})")
    return texts


def explained(found: TableResults) -> str:
    """Write comparisons and caption, shown below the table, in Markdown."""
    about = caption(
        found.table,
        found.recipe_scale,
        found.shown,
        is_study=found.study is not None,
        missing_rows=found.missing_rows,
    )
    return "\n\n".join([*comparisons(found.judged), "## What was trained on what", about])


def attentions_of(lines: list[Line]) -> list[str]:
    """List the attentions of lines, those of the papers first."""
    own = {line.attention for line in lines}
    return [*(a for a in ATTENTIONS if a in own), *sorted(own - set(ATTENTIONS))]
