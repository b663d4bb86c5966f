"""Correlation of properties with performance by range of offsets (BERT paper, Figure 5)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq_plugins.analysis.figure_files import RenderedFigure, draw_lines
from fairseq_plugins.analysis.position_vectors import NEAR as NEIGHBOURS
from fairseq_plugins.analysis.sentences import sentences, summarise
from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert import BERT_PROPERTIES_TABLE
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.papers.tables import AVERAGE
from fairseq_plugins.statistics.comparisons import Cells, rows_of
from fairseq_plugins.statistics.correlations import LEAST_ROWS, of_fine_tuned
from fairseq_plugins.statistics.inference import correlation
from fairseq_plugins.statistics.table_results import TableFolder

# The tasks of the paper's figure, by table and metric; SQuAD by exact matches, as in its Table 5.
TASKS = (
    *(("bert_table3", name) for name in ("CoLA", "SST-2", "MNLI", "QQP", AVERAGE)),
    *(("bert_table4", name) for name in ("v1_exact", "v2_exact")),
)
# Claims of Figure 5: the offsets at which monotonicity correlates with span tasks, and thresholds
# for correlations of monotonicity and of direction balance.
SPAN_OFFSETS, CLOSELY, BALANCED = (20, 55), 0.9, 0.5
_LABELS = {metric: TABLES[table].column(metric).label for table, metric in TASKS}
_SPAN_TASKS, _OPPOSITE = ("v1_exact", "v2_exact"), "SST-2"
OFFSETS = "offsets"  # the largest offset of each range, in `by_offset` of a result
MEASURES = ("monotonicity", "direction_balance")
# A property by range of offsets; None where it is undefined.
ByOffset = Sequence[float | None]


def correlate_by_offset(
    properties: Mapping[str, ByOffset], performance: Mapping[str, float]
) -> list[float | None]:
    """Correlate a property within each range of offsets with a performance, over rows (Pearson).

    Args:
        properties: property by range of offsets, by row.
        performance: performance by row.

    Returns:
        A correlation for each range; None for constant values or fewer than `LEAST_ROWS` rows.
    """
    rows = [row for row in properties if row in performance]
    found: list[float | None] = []
    for values in zip(*(properties[row] for row in rows), strict=True):
        known = [
            (x, performance[row]) for row, x in zip(rows, values, strict=True) if x is not None
        ]
        one = correlation(*zip(*known, strict=True)) if len(known) >= LEAST_ROWS else None
        found.append(None if one is None else one.effect)
    return found


def read_properties(root: Path, scale: str) -> dict[str, dict[str, ByOffset]]:
    """Read the properties by offset of Table 2's models: by row, then by measure, and `OFFSETS`.

    At `published` they are means over seeds, elsewhere those of seed 1, as in Table 5.
    """
    by_row: dict[str, dict[int, Mapping[str, ByOffset]]] = {}
    known = EXPERIMENTS[BERT_PROPERTIES_TABLE.experiment].scales[scale]
    for result in TableFolder(root, BERT_PROPERTIES_TABLE, known).read().shown:
        if result["attention"] == "vanilla" and (one := result["metrics"].get("by_offset")):
            by_row.setdefault(result["row"], {})[result["seed"]] = one
    return {row: _over_seeds(by_row[row], scale) for row in ROWS if row in by_row}


def _over_seeds(seeds: Mapping[int, Mapping[str, ByOffset]], scale: str) -> dict[str, ByOffset]:
    first = next(iter(seeds.values()))
    found: dict[str, ByOffset] = {OFFSETS: first[OFFSETS]}
    for name in MEASURES:
        found[name] = [
            of_fine_tuned(
                {seed: x for seed, one in seeds.items() if (x := one[name][i]) is not None}, scale
            )
            for i in range(len(first[OFFSETS]))
        ]
    return found


def measure_by_offset(
    properties: Mapping[str, Mapping[str, ByOffset]], cells: Mapping[str, Cells]
) -> dict[str, Any]:
    """Compute the numbers of Figure 5 from properties and the cells of Tables 3 and 4.

    Raises:
        ValueError: too few rows for a correlation.
    """
    measured = {
        (table, metric): {row: fmean(seeds.values()) for row, seeds in found.items()}
        for table, metric in TASKS
        if (found := rows_of(cells.get(table, {}), "vanilla", metric))
    }
    if len(properties) < LEAST_ROWS or not measured:
        raise ValueError(
            f"figure 5 needs properties by offset of at least {LEAST_ROWS} rows, from "
            f"{typed_command('scripts/bert_table2.sh')}, and results of Table 3 or 4, but there "
            f"are {len(properties)} such rows, and results of {len(measured)} tasks."
        )
    numbers: dict[str, Any] = {
        "rows": list(properties),
        "reaches": [int(x) for x in next(iter(properties.values()))[OFFSETS] if x is not None],
    }
    for name in MEASURES:
        own = {row: one[name] for row, one in properties.items()}
        for (_, metric), performance in measured.items():
            numbers[f"{name.replace('_', ' ')}, {metric}"] = correlate_by_offset(own, performance)
    return numbers


def draw_by_offset(numbers: Mapping[str, Any]) -> RenderedFigure:
    """Draw Figure 5, and compare it with the paper's words."""
    reaches, panels, lines = numbers["reaches"], [], []
    for name in (measure.replace("_", " ") for measure in MEASURES):
        curves = {}
        for _, metric in TASKS:
            found = numbers.get(f"{name}, {metric}", [None] * len(reaches))
            known = [(x, y) for x, y in zip(reaches, found, strict=True) if y is not None]
            if known:
                label = _LABELS[metric]
                curves[label] = ([float(x) for x, _ in known], [y for _, y in known])
                furthest = max(known, key=lambda point: abs(point[1]))
                lines.append([name, label, f"{furthest[1]:+z.2f}", str(furthest[0])])
        panels.append((name, "largest offset", "Pearson's correlation over rows", curves))
    rows = numbers["rows"]
    without = [f"`{row}`" for row in ROWS if row not in rows]
    lacks = f"Without properties of {', '.join(without)}. " if without else ""
    summary = (
        f"Over {len(rows)} rows: {', '.join(f'`{row}`' for row in rows)}. "
        f"{lacks}A correlation over so "
        "few rows has a wide interval (see the page of Table 5), and the largest one among many "
        "offsets overstates the true one. Properties are means over the seeds that have them (at "
        "`mini` those of seed 1), scores over all seeds."
    )
    header = ["property", "task", "furthest from 0", "at largest offset"]
    parts = [summary, markdown_table(header, lines)]
    return RenderedFigure(draw_lines(panels, rule=0.0), numbers, parts, check_ranges(numbers))


def check_ranges(numbers: Mapping[str, Any]) -> str:
    """Compare the correlations with the paper's words on Figure 5."""
    first, last = SPAN_OFFSETS
    middle = {
        _LABELS[task]: found
        for task in (*_SPAN_TASKS, _OPPOSITE)
        if (found := _within(numbers, f"monotonicity, {task}", first, last))
    }
    means = {task: sum(found) / len(found) for task, found in middle.items()}
    opposite = means.pop(_LABELS[_OPPOSITE], None)
    balance = {}
    for key in numbers:
        name, _, task = key.partition(", ")
        if name == "direction balance" and (near := _within(numbers, key, 1, NEIGHBOURS)):
            most, far = max(near), _within(numbers, key, 1, max(numbers["reaches"]))[-1]
            balance[_LABELS[task]] = (most > max(BALANCED, far), f"{most:+z.2f}, {far:+z.2f}")
    return sentences(
        summarise(
            f"Monotonicity within {first} to {last} offsets correlates with span prediction by "
            f"less than {-CLOSELY} (the least in that range)",
            {task: (min(middle[task]) < -CLOSELY, f"{min(middle[task]):+z.2f}") for task in means},
        ),
        ""
        if opposite is None
        else summarise(
            f"There {_LABELS[_OPPOSITE]} correlates the other way round (mean {opposite:+z.2f}) "
            "from span prediction (mean)",
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
