"""What the page that compares needs: every cell, and every pair of rows of a table."""

from collections.abc import Mapping
from typing import Any

from fairseq_plugins.site.runs import cell_view, joined, shared_of
from fairseq_plugins.statistics.comparisons import judge_pairs
from fairseq_plugins.statistics.evidence import Evidence, TableEvidence
from fairseq_plugins.statistics.inference import Estimate

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
    """By attention the rows, and of each two what the table's page says of them.

    A pair: places of the two rows, effect, interval, p after correction, common seeds, and the
    verdict on the first.
    """
    result = {}
    for attention in [*found.table.attentions, *found.table.extra_attentions]:
        judged = judge_pairs(found.table, found.cells, attention)
        names = sorted({name for pair in judged for name in pair})
        places = {name: place for place, name in enumerate(names)}
        pairs = []
        for (first, second), one in judged.items():
            numbers = [one.effect, one.low, one.high]
            short = [None if n is None else float(f"{n:.4g}") for n in numbers]
            p = None if one.adjusted is None else round(one.adjusted, 5)  # shown with three
            pairs.append([places[first], places[second], *short, p, one.seeds, _word(found, one)])
        if pairs:
            result[attention] = {"rows": names, "pairs": pairs}
    return result


def _word(found: TableEvidence, one: Estimate) -> str:
    """Verdict on the first of two rows from their difference."""
    if one.p is None:
        return "one seed"
    if not one.is_apart:
        return "tie"
    return "better" if (one.effect > 0) == found.table.ranked_by.higher_is_better else "worse"
