"""The values of a table's cells by row, attention, metric and seed."""

import math
import statistics
from collections.abc import Iterable, Mapping

from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.inference import Estimate, Seeds, correct_all

# The values of a row under an attention, by metric and seed.
Cell = Mapping[str, Seeds]
Cells = Mapping[tuple[str, str], Cell]  # by (row, attention)


def deviation(seeds: Seeds) -> float | None:
    """Return the sample standard deviation; None for a single value."""
    return statistics.stdev(seeds.values()) if len(seeds) > 1 else None


def gather(results: Iterable[Result], columns: Iterable[Column], suffix: str = "") -> Cells:
    """Collect the columns' metrics of results; `suffix` picks an evaluation, as "_context_400"."""
    metrics = [column.metric for column in columns]
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for result in sorted(results, key=lambda result: result["seed"]):
        cell = found.setdefault((result["row"], result["attention"]), {})
        for metric in metrics:
            value = result["metrics"].get(metric + suffix)
            if value is not None:
                cell.setdefault(metric, {})[result["seed"]] = value
    return {place: cell for place, cell in found.items() if cell}


def rows_of(cells: Cells, attention: str, metric: str) -> dict[str, Seeds]:
    """Return the values of a metric under an attention, by row."""
    return {
        row: cell[metric] for (row, a), cell in cells.items() if a == attention and metric in cell
    }


def logarithms(rows: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """Return the natural logarithm of each value, by row and seed."""
    return {row: {s: math.log(value) for s, value in seeds.items()} for row, seeds in rows.items()}


def within_runs(first: Mapping[str, Seeds], second: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """Return the first metric minus the second of each run that has both, by row and seed."""
    found = {
        row: {seed: seeds[seed] - second[row][seed] for seed in seeds if seed in second[row]}
        for row, seeds in first.items()
        if row in second
    }
    return {row: seeds for row, seeds in found.items() if seeds}


def correct_by_family(table: Table, found: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Correct p-values by Holm's method, separately for the paper's rows and for all others.

    So the number of further encodings does not change the verdicts on the paper's rows.
    """
    judged = correct_all({name: one for name, one in found.items() if name in table.row_names})
    judged |= correct_all({name: one for name, one in found.items() if name not in table.row_names})
    return {name: judged[name] for name in found}


def printed_cells(table: Table) -> Cells:
    """Return the paper's own numbers as cells with one seed, 0."""
    return {
        (row.name, attention): {metric: {0: n.mean} for metric, n in numbers.items()}
        for row in table.rows
        for attention, numbers in row.paper.items()
    }
