"""Correlation of properties with performance by range of offsets (BERT paper, Figure 5)."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_plugins.analysis.figure_files import RenderedFigure, draw_lines
from fairseq_plugins.analysis.indicators import NEAR, direction_balance, monotonicity
from fairseq_plugins.analysis.position_vectors import NEAR as NEIGHBOURS
from fairseq_plugins.analysis.sentences import sentences, summarise
from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.experiments.identical_words import PATTERN
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.papers.tables import AVERAGE
from fairseq_plugins.records.runs import Run
from fairseq_plugins.statistics.comparisons import Cells, rows_of
from fairseq_plugins.statistics.correlations import LEAST_ROWS, over_rows
from fairseq_plugins.statistics.inference import correlation

# The tasks of the paper's figure, by table and metric; SQuAD by exact matches, as in its Table 5.
TASKS = (
    *(("bert_table3", name) for name in ("CoLA", "SST-2", "MNLI", "QQP", AVERAGE)),
    *(("bert_table4", name) for name in ("v1_exact", "v2_exact")),
)
# Columns of Table 2 that Table 5 correlates: measure and largest offset ("first 20" includes 0).
TABLE_5 = {
    "monotonicity": ("monotonicity", sys.maxsize),
    "monotonicity_20": ("monotonicity", NEAR - 1),
    "direction_balance": ("direction balance", NEAR),
}
# Claims of Figure 5: the offsets at which monotonicity correlates with span tasks, and thresholds
# for correlations of monotonicity and of direction balance.
SPAN_OFFSETS, CLOSELY, BALANCED = (20, 55), 0.9, 0.5
_SPAN_TASKS, _OPPOSITE = ("v1_exact", "v2_exact"), "SST-2"
WEIGHTS_NOTE = (
    "The attention weights are those of seed 1 in the runs' folders, which are not part of the "
    "results. If a model was trained again, as on another machine, they differ from those behind "
    "the indicators in Table 2, of which Table 5 takes seed 1 (at `published` the mean over "
    "seeds). The performances are the same as in Table 5, means over the seeds of Tables 3 and 4. "
    "So differences between the two numbers of a cell come from the weights:"
)
NO_RUNS_NOTE = (
    "The runs of Tables 3 and 4 at this scale, whose means over seeds are the performances, are "
    "not among the results, so nothing shows on which tasks a row beats the trivial baselines. "
    "Where none does, a correlation means nothing."
)
MEASURES: dict[str, Callable[[Tensor, int], float]] = {
    "monotonicity": lambda weights, reach: monotonicity(weights, reach + 1),
    "direction balance": direction_balance,
}


def correlate_by_offset(
    weights: Mapping[str, Tensor],
    performance: Mapping[str, float],
    reaches: Sequence[int],
    measure: Callable[[Tensor, int], float],
) -> list[float | None]:
    """Correlate a measure within some offsets with a performance, over rows (Pearson).

    Args:
        weights: attention weights (T, T) by row.
        performance: performance by row.
        reaches: largest offset of each measurement.
        measure: computes an indicator of weights within an offset.

    Returns:
        A correlation for each reach; None for constant values or fewer than `LEAST_ROWS` rows.
    """
    rows = [row for row in weights if row in performance]
    if len(rows) < LEAST_ROWS:
        return [None] * len(reaches)
    performances = [performance[row] for row in rows]
    measured = ([measure(weights[row], reach) for row in rows] for reach in reaches)
    found = (correlation(values, performances) for values in measured)
    return [None if one is None else one.effect for one in found]


def read_weights(root: Path, scale: str) -> dict[str, Tensor]:
    """Read the attention weights (T, T) of Table 2's rows, seed 1, from the runs' folders.

    They are not part of the results, so a new clone has none.
    """
    found = {}
    for row in ROWS:
        path = root / Run("bert_table2", scale, row, "vanilla", 1).folder / PATTERN
        if path.is_file():
            found[row] = torch.from_numpy(np.load(path)).double()
    return found


def measure_by_offset(weights: Mapping[str, Tensor], cells: Mapping[str, Cells]) -> dict[str, Any]:
    """Compute the numbers of Figure 5 from weights and the cells of Tables 3 and 4.

    Raises:
        ValueError: too few rows for a correlation.
    """
    if len(weights) < LEAST_ROWS:
        raise ValueError(
            f"figure 5 needs the weights of at least {LEAST_ROWS} rows, as "
            f"{typed_command('scripts/bert_table2.sh')} --missing-checkpoints leaves them in the "
            f"runs' folders, but {len(weights)} are there."
        )
    length = len(next(iter(weights.values())))
    reaches = sorted({*range(1, min(20, length)), *range(20, length, 4), length - 1})
    numbers: dict[str, Any] = {"rows": list(weights), "reaches": reaches}
    for name, measure in MEASURES.items():
        for table, metric in TASKS:
            rows = rows_of(cells.get(table, {}), "vanilla", metric)
            performance = {row: fmean(seeds.values()) for row, seeds in rows.items()}
            numbers[f"{name}, {metric}"] = correlate_by_offset(
                weights, performance, reaches, measure
            )
    return numbers


def draw_by_offset(
    numbers: Mapping[str, Any], cells: Mapping[str, Cells], scale: str
) -> RenderedFigure:
    """Draw Figure 5, and compare it with the correlations of Tables 2 to 4."""
    reaches, panels, lines = numbers["reaches"], [], []
    for name in MEASURES:
        curves = {}
        for table, metric in TASKS:
            found = numbers[f"{name}, {metric}"]
            known = [(x, y) for x, y in zip(reaches, found, strict=True) if y is not None]
            if known:
                label = _label(table, metric)
                curves[label] = ([float(x) for x, _ in known], [y for _, y in known])
                furthest = max(known, key=lambda point: abs(point[1]))
                lines.append([name, label, f"{furthest[1]:+z.2f}", str(furthest[0])])
        panels.append((name, "largest offset", "Pearson's correlation over rows", curves))
    rows = numbers["rows"]
    summary = (
        f"Over {len(rows)} rows: {', '.join(f'`{row}`' for row in rows)}. A correlation over so "
        "few rows has a wide interval (see the page of Table 5), and the largest one among many "
        "offsets overstates the true one."
    )
    header = ["property", "task", "furthest from 0", "at largest offset"]
    parts, found = [summary, markdown_table(header, lines)], check_ranges(numbers)
    if any(cells.get(table) for table, _ in TASKS):
        parts += [WEIGHTS_NOTE, _beside_table_5(numbers, cells, scale)]
    else:
        found = f"{NO_RUNS_NOTE} {found}"
    return RenderedFigure(draw_lines(panels, rule=0.0), numbers, parts, found)


def _beside_table_5(numbers: Mapping[str, Any], cells: Mapping[str, Cells], scale: str) -> str:
    """Tabulate the figure's correlations beside those of Table 5, at its ranges of offsets."""
    tasks = [
        task
        for task in TASKS
        if any(one is not None for name in MEASURES for one in numbers[f"{name}, {task[1]}"])
    ]
    lines = []
    for column, (name, reach) in TABLE_5.items():
        index = numbers["reaches"].index(min(reach, numbers["reaches"][-1]))
        line = [_label("bert_table2", column)]
        for task in tasks:
            pair = ("bert_table2", column), task
            found = over_rows(cells, *pair, "vanilla", numbers["rows"], scale).estimate
            both = numbers[f"{name}, {task[1]}"][index], None if found is None else found.effect
            line.append(" / ".join(DASH if one is None else f"{one:+z.2f}" for one in both))
        lines.append(line)
    return markdown_table(["figure / Table 5", *(_label(*task) for task in tasks)], lines, left=1)


def _label(table: str, metric: str) -> str:
    return TABLES[table].column(metric).label


def check_ranges(numbers: Mapping[str, Any]) -> str:
    """Compare the correlations with the paper's words on Figure 5."""
    first, last = SPAN_OFFSETS
    middle = {
        task: found
        for task in (*_SPAN_TASKS, _OPPOSITE)
        if (found := _within(numbers, f"monotonicity, {task}", first, last))
    }
    means = {task: sum(found) / len(found) for task, found in middle.items()}
    opposite = means.pop(_OPPOSITE, None)
    balance = {}
    for key in numbers:
        name, _, task = key.partition(", ")
        if name == "direction balance" and (near := _within(numbers, key, 1, NEIGHBOURS)):
            most, far = max(near), _within(numbers, key, 1, max(numbers["reaches"]))[-1]
            balance[task] = (most > max(BALANCED, far), f"{most:+z.2f}, {far:+z.2f}")
    return sentences(
        summarise(
            f"Monotonicity within {first} to {last} offsets correlates with span prediction by "
            f"less than {-CLOSELY} (the least in that range)",
            {task: (min(middle[task]) < -CLOSELY, f"{min(middle[task]):+z.2f}") for task in means},
        ),
        ""
        if opposite is None
        else summarise(
            f"There `{_OPPOSITE}` correlates the other way round (mean {opposite:+z.2f}) from span "
            "prediction (mean)",
            {task: (own < 0 < opposite, f"{own:+z.2f}") for task, own in means.items()},
        ),
        summarise(
            f"Direction balance correlates by more than {BALANCED} within few offsets, and less "
            f"within all (the most within 1 to {NEIGHBOURS} offsets, and within all)",
            balance,
        ),
    )


def _within(numbers: Mapping[str, Any], key: str, first: int, last: int) -> list[float]:
    """Return the correlations of a property with a task for offsets `first` to `last`."""
    return [
        value
        for reach, value in zip(numbers["reaches"], numbers.get(key, ()), strict=False)
        if first <= reach <= last and value is not None
    ]
