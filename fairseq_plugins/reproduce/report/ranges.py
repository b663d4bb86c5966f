"""In which range of offsets properties correlate with performance: the BERT paper's Figure 5."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_plugins.analysis.figure_files import Made, draw_lines
from fairseq_plugins.analysis.indicators import direction_balance, monotonicity
from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.papers.tables import AVERAGE
from fairseq_plugins.reproduce.experiments.identical_words import PATTERN
from fairseq_plugins.reproduce.record.runs import Run
from fairseq_plugins.reproduce.report.correlations import LEAST_ROWS
from fairseq_plugins.reproduce.report.orderings import Cells, mean, rows_of
from fairseq_plugins.reproduce.report.statistics import correlation

# The tasks of the paper's figure, by table and metric. It says that SQuAD's F1 and exact matches
# look alike; as in its Table 5, these are exact matches.
TASKS = (
    *(("bert_table3", name) for name in ("CoLA", "SST-2", "MNLI", "QQP", AVERAGE)),
    *(("bert_table4", name) for name in ("v1_exact", "v2_exact")),
)
MEASURES: dict[str, Callable[[Tensor, int], float]] = {
    "monotonicity": lambda weights, reach: monotonicity(weights, reach + 1),
    "direction balance": direction_balance,
}


def correlate_ranges(
    weights: Mapping[str, Tensor],
    performance: Mapping[str, float],
    reaches: Sequence[int],
    measure: Callable[[Tensor, int], float],
) -> list[float | None]:
    """Pearson's correlation of a measure within some offsets with a performance, over rows.

    Args:
        weights: by row (T, T), as `analysis.indicators` takes them.
        performance: by row.
        reaches: the largest offset of each measurement.
        measure: of weights, within an offset.

    Returns:
        One for each reach; None where a side is all the same, or fewer than `LEAST_ROWS` have both.
    """
    rows = [row for row in weights if row in performance]
    found: list[float | None] = []
    for reach in reaches:
        one = None
        if len(rows) >= LEAST_ROWS:
            values = [measure(weights[row], reach) for row in rows]
            one = correlation(values, [performance[row] for row in rows])
        found.append(None if one is None else one.effect)
    return found


def read_weights(root: Path, scale: str) -> dict[str, Tensor]:
    """What the rows of Table 2 attend to, by row, from the runs' folders: (T, T) of the first seed.

    They are no part of results: a new clone has none.
    """
    found = {}
    for row in ROWS:
        path = root / Run("bert_table2", scale, row, "vanilla", 1).folder / PATTERN
        if path.is_file():
            found[row] = torch.from_numpy(np.load(path)).double()
    return found


def draw_ranges(weights: Mapping[str, Tensor], cells: Mapping[str, Cells]) -> Made:
    """Figure 5 from the weights of some rows and the cells of Tables 3 and 4.

    Raises:
        ValueError: fewer rows than a correlation needs.
    """
    if len(weights) < LEAST_ROWS:
        raise ValueError(
            f"figure 5 needs the weights of at least {LEAST_ROWS} rows, as "
            f"{as_typed('scripts/bert_table2.sh')} --missing-checkpoints leaves them in the runs' "
            f"folders, but {len(weights)} are there."
        )
    length = len(next(iter(weights.values())))
    reaches = sorted({*range(1, min(20, length)), *range(20, length, 4), length - 1})
    numbers: dict[str, Any] = {"rows": list(weights), "reaches": reaches}
    panels, lines = [], []
    for name, measure in MEASURES.items():
        curves = {}
        for table, metric in TASKS:
            rows = rows_of(cells.get(table, {}), "vanilla", metric)
            performance = {row: mean(seeds.values()) for row, seeds in rows.items()}
            found = correlate_ranges(weights, performance, reaches, measure)
            label = next(c.label for c in TABLES[table].columns if c.metric == metric)
            numbers[f"{name}, {metric}"] = found
            known = [(x, y) for x, y in zip(reaches, found, strict=True) if y is not None]
            if known:
                curves[label] = ([float(x) for x, _ in known], [y for _, y in known])
                furthest = max(known, key=lambda point: abs(point[1]))
                lines.append([name, label, f"{furthest[1]:+.2f}", str(furthest[0])])
        panels.append((name, "largest offset", "Pearson's correlation over rows", curves))
    said = (
        f"Over {len(weights)} rows: {', '.join(f'`{row}`' for row in weights)}. With so few, a "
        "correlation has a wide interval, as the page of Table 5 says; chosen among many offsets, "
        "the largest says less still."
    )
    header = ["property", "task", "furthest from 0", "at largest offset"]
    return Made(draw_lines(panels, rule=0.0), numbers, [said, markdown_table(header, lines)])
