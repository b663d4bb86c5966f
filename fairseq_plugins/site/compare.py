"""Data of the comparison page: every cell, and every pair of rows of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_plugins.report.differences import probability
from fairseq_plugins.site.runs import TableCells, joined
from fairseq_plugins.statistics.table_results import Evidence, TableResults

Data = dict[str, Any]
MOST_POINTS = 12  # per curve


def compare_data(evidence: Evidence, runs: Mapping[str, TableCells]) -> Data:
    """Collect tables with cells and pairs; cells list the settings that their table does not share.

    runs: by the page of each table that has results.
    """
    return {"tables": [_table(one, runs[one.page]) for one in evidence.tables if one.shown]}


def _table(found: TableResults, runs: TableCells) -> Data:
    column = found.table.ranked_by
    return {
        "name": f"{found.table.source}, {found.scale}",
        "page": found.page,
        "metric": column.label,
        "higher": column.higher_is_better,
        "digits": column.digits,
        "config": joined(runs.settings),
        "cells": [
            {
                "row": cell.row,
                "label": cell.label,
                "attention": found.table.word_of(cell.attention),
                "page": cell.page,
                "metrics": [[label, list(values), m] for label, values, m in cell.metrics],
                "seeds": list(cell.seeds),
                "curves": {
                    run.seed: {name: _thin(points) for name, points in run.curves.items()}
                    for run in cell.runs
                    if run.curves
                },
                "config": joined(cell.settings),
            }
            for cell in runs.cells
        ],
        "pairs": pairs_of(found),
    }


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep at most `MOST_POINTS` points, including the last."""
    step = -(-len(points) // MOST_POINTS)
    return [(update, float(f"{loss:.4g}")) for update, loss in points[::-1][:: step or 1][::-1]]


def pairs_of(found: TableResults) -> Mapping[str, Data]:
    """Return the name and the rows of each attention, and the judged pairs.

    A pair: indices of the two rows, effect, interval, corrected p as text, number of common seeds,
    and the verdict on the first row.
    """
    result, digits = {}, found.table.ranked_by.digits
    for attention in [*found.table.attentions, *found.table.extra_attentions]:
        judged = found.judged.pairs(attention)
        names = sorted({name for pair in judged for name in pair})
        index = {name: i for i, name in enumerate(names)}
        pairs = []
        for (first, second), one in judged.items():
            numbers = [one.effect, one.low, one.high]
            short = [None if n is None else round(n, digits) for n in numbers]  # as on the page
            p = probability(one.adjusted)
            pairs.append(
                [index[first], index[second], *short, p, one.seeds, found.judged.verdict(one)]
            )
        if pairs:
            word = found.table.word_of(attention)
            result[attention] = {"name": word, "rows": names, "pairs": pairs}
    return result
