"""What the page that compares needs: every cell, and every pair of rows of a table."""

import itertools
from collections.abc import Mapping
from typing import Any

from fairseq_plugins.reproduce.report.orderings import rows_of, spread_of
from fairseq_plugins.reproduce.report.site.evidence import Evidence, TableEvidence
from fairseq_plugins.reproduce.report.site.runs import cell_view, joined, shared_of
from fairseq_plugins.reproduce.report.statistics import difference

Data = dict[str, Any]


def compare_data(evidence: Evidence) -> Data:
    """Tables with their cells and pairs; a cell has the settings that not all of its table have."""
    return {"tables": [_table(one) for one in evidence.tables if one.shown]}


def _table(found: TableEvidence) -> Data:
    shared = shared_of(found)
    cells = [cell_view(found, row, attention, shared) for row, attention in found.runs]
    column = found.table.ranked_by
    return {
        "name": f"{found.table.source}, {found.scale}",
        "page": found.page,
        "metric": column.label,
        "higher": column.higher_is_better,
        "digits": column.digits,
        "config": joined(shared.configuration),
        "cells": [
            {
                "row": cell.row,
                "label": cell.label,
                "attention": cell.attention,
                "page": cell.page,
                "metrics": [[label, list(values), m] for label, values, m in cell.metrics],
                "seeds": list(cell.seeds),
                "curves": {run.seed: run.curves for run in cell.runs if run.curves},
                "config": joined(cell.configuration),
            }
            for cell in cells
        ],
        "pairs": _pairs(found),
    }


def _pairs(found: TableEvidence) -> Mapping[str, Data]:
    """By attention the rows, and of each two their places, effect, interval, p, common seeds."""
    metric = found.table.ranked_by.metric
    result = {}
    for attention in [*found.table.attentions, *found.table.further]:
        rows = rows_of(found.cells, attention, metric)
        spread = spread_of(found.cells, attention, metric)
        pairs = []
        names = sorted(rows)
        for first, second in itertools.combinations(range(len(names)), 2):
            one = difference([rows[names[first]]], [rows[names[second]]], spread)
            numbers = [one.effect, one.low, one.high]
            short = [None if n is None else float(f"{n:.4g}") for n in numbers]
            p = None if one.p is None else round(one.p, 5)  # shown with three
            pairs.append([first, second, *short, p, one.seeds])
        if pairs:
            result[attention] = {"rows": names, "pairs": pairs}
    return result
