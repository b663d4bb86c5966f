"""The lines of a table: the paper's numbers, ours and the verdict on a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fairseq_plugins.common.tables import DASH
from fairseq_plugins.report.differences import interval, p_is
from fairseq_plugins.statistics.comparisons import deviation
from fairseq_plugins.statistics.inference import Estimate, Seeds
from fairseq_plugins.statistics.judged import JudgedTable, best_baseline

REFERENCE, ALONE, NOT_RUN = "reference", "no reference", "not run"  # besides verdicts


@dataclass(frozen=True)
class Number:
    """A number of a cell."""

    paper: str = ""
    ours: str = ""
    order: float | None = None  # mean of ours
    paper_order: float | None = None  # mean of the paper's
    sure: str = ""  # the interval of ours, where every number has one
    mark: bool = False  # whether ours differs significantly from the reference
    below_baseline: bool = False  # whether ours is not significantly better than the best baseline


@dataclass(frozen=True)
class Line:
    """A row under an attention."""

    row: str
    label: str
    group: str
    attention: str
    numbers: Mapping[str, Number]  # by metric, in the order of the table's columns
    is_run: bool  # whether there are results
    verdict: str  # against the reference in the ranking column
    effect: str = ""  # that difference, as text
    sure: str = ""  # its interval
    p: str = ""
    effect_order: float | None = None


def cell_text(seeds: Seeds | None, digits: int = 2) -> str:
    """Format mean, standard deviation and number of seeds: "81.20 ± 0.31 (3)"."""
    if not seeds:
        return DASH
    spread = deviation(seeds)
    if spread is None:
        return f"{fmean(seeds.values()):z.{digits}f} (1)"
    return f"{fmean(seeds.values()):z.{digits}f} ± {spread:.{digits}f} ({len(seeds)})"


def lines_of(judged: JudgedTable) -> dict[tuple[str, str], Line]:
    """Return by row and attention the paper's rows in its order, then others, per attention."""
    table = judged.table
    lines = {}
    for attention in [*table.attentions, *table.extra_attentions]:
        printed = [row.name for row in table.rows if attention in row.paper]
        own = [row for row, a in judged.cells if a == attention]
        baselines = {column: best_baseline(column, judged.baselines) for column in table.columns}
        above = {
            column.metric: judged.rows_above(attention, column, baseline[1]) if baseline else None
            for column, baseline in baselines.items()
        }
        for name in [*printed, *sorted(set(own) - set(printed))]:
            lines[name, attention] = _line(judged, name, attention, above)
    return lines


def _line(
    judged: JudgedTable, name: str, attention: str, above: Mapping[str, Sequence[str] | None]
) -> Line:
    table, row = judged.table, judged.table.row(name)
    cell = judged.cells.get((name, attention), {})
    compared = {c.metric: judged.against(attention, c.metric).get(name) for c in table.columns}
    numbers = {}
    for column in table.columns:
        seeds, rows = cell.get(column.metric), above[column.metric]
        printed = row.paper.get(attention, {}).get(column.metric)
        numbers[column.metric] = Number(
            paper=printed.text(column.digits) if printed else "",
            ours=cell_text(seeds, column.digits) if seeds else "",
            order=fmean(seeds.values()) if seeds else None,
            paper_order=printed.mean if printed else None,
            mark=(one := compared[column.metric]) is not None and one.is_significant,
            below_baseline=bool(seeds) and rows is not None and name not in rows,
        )
    estimate, digits = compared[table.ranked_by.metric], table.ranked_by.digits
    words = {}
    if estimate is not None:
        words = {
            "effect": f"{estimate.effect:+z.{digits}f}",
            "sure": "" if estimate.low is None else interval(estimate, digits),
            "p": "" if estimate.adjusted is None else p_is(estimate.adjusted),
        }
    return Line(
        row=name,
        label=row.label,
        group=row.group or ("" if name in table.row_names else "beyond the paper"),
        attention=attention,
        numbers=numbers,
        is_run=bool(cell),
        verdict=_verdict(judged, name, estimate, is_run=bool(cell)),
        effect_order=None if estimate is None else estimate.effect,
        **words,
    )


def _verdict(judged: JudgedTable, name: str, estimate: Estimate | None, *, is_run: bool) -> str:
    if not is_run:
        return NOT_RUN
    if name == judged.table.reference:
        return REFERENCE
    return ALONE if estimate is None else judged.verdict(estimate)
