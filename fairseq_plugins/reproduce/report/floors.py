"""What needs no model of ours, and whether any row is better than it."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.reproduce.experiments import EXPERIMENTS
from fairseq_plugins.reproduce.record.data import DataDescription
from fairseq_plugins.reproduce.record.results import Result
from fairseq_plugins.reproduce.report.orderings import (
    Cells,
    by_family,
    mean,
    rows_of,
    spread_of,
)
from fairseq_plugins.reproduce.report.statistics import (
    SIGNIFICANT,
    above,
    holm,
    p_of_share,
)

DASH = "-"
Floors = Mapping[str, Mapping[str, float]]  # by metric and by the name of what gives it


def floors_of(table: Table, results: Sequence[Result]) -> Floors:
    """The floors that the data of the results says.

    Runs of a table have the same data, but it may have been described earlier, with fewer floors:
    the description with most of them counts.
    """
    experiment = EXPERIMENTS[table.experiment]
    described = (
        experiment.floors(DataDescription.model_validate(r["data"]), r["scale"]) for r in results
    )
    floors: dict[str, dict[str, float]] = {}
    for found in sorted(described, key=lambda one: sum(map(len, one.values()))):
        for metric, known in found.items():
            floors.setdefault(metric, {}).update(known)
    return {c.metric: floors[c.metric] for c in table.columns if floors.get(c.metric)}


def examples_of(table: Table, results: Sequence[Result]) -> Mapping[str, int]:
    """By metric, where it is a share of examples, how many of them the results were measured on."""
    experiment = EXPERIMENTS[table.experiment]
    for result in results:
        found = experiment.examples(DataDescription.model_validate(result["data"]), result["scale"])
        if found:
            return found
    return {}


def highest(column: Column, floors: Floors) -> tuple[str, float] | None:
    """The name and the number of the best floor of a column."""
    known = floors.get(column.metric)
    if not known:
        return None
    sign = 1 if column.higher_is_better else -1
    return max(known.items(), key=lambda item: sign * item[1])


def risen(table: Table, cells: Cells, attention: str, column: Column, value: float) -> list[str]:
    """The rows that are better than a number beyond chance, with Holm's correction `by_family`.

    By their numbers alone where no row has several seeds; orderings are then claimed nowhere.
    """
    spread = spread_of(cells, attention, column.metric)
    sign = 1 if column.higher_is_better else -1
    rows = rows_of(cells, attention, column.metric)
    found = by_family(table, {name: above(row, value, spread) for name, row in rows.items()})
    sure = {name: one for name, one in found.items() if one.is_apart or spread is None}
    return [name for name, one in sure.items() if sign * one.effect > 0]


def none_rises(table: Table, cells: Cells, attention: str, column: Column, floors: Floors) -> str:
    """Says that no row of a column is better than its floor; empty where one is, or without one."""
    floor = highest(column, floors)
    if floor is None or not rows_of(cells, attention, column.metric):
        return ""
    name, value = floor
    if risen(table, cells, attention, column, value):
        return ""
    return (
        f"no row's {column.label} can be told apart as better than *{name}*, "
        f"{value:.{column.digits}f}"
    )


def _over_examples(
    table: Table, attention: str, cells: Cells, floors: Floors, examples: Mapping[str, int]
) -> str:
    """How many rows are better than each floor, were other examples drawn; empty without rows."""
    columns = [c for c in table.columns if c.metric in examples and c.metric in floors]
    rows = {column.metric: rows_of(cells, attention, column.metric) for column in columns}
    names = dict.fromkeys(name for column in columns for name in floors[column.metric])
    p_values = {
        (name, metric, row): p_of_share(mean(seeds.values()), examples[metric], value)
        for name in names
        for metric, found in rows.items()
        if (value := floors[metric].get(name)) is not None
        for row, seeds in found.items()
    }
    if not p_values:
        return ""
    adjusted = dict(zip(p_values, holm([*p_values.values()]), strict=True))

    def cell(name: str, metric: str) -> str:
        found = [p for (n, m, _), p in adjusted.items() if (n, m) == (name, metric)]
        return f"{sum(p < SIGNIFICANT for p in found)} of {len(found)}" if found else DASH

    lines = [[name, *(cell(name, column.metric) for column in columns)] for name in names]
    return markdown_table(
        [f"{attention}: rows better than", *(column.label for column in columns)], lines, left=1
    )


def _margin(cells: Cells, attention: str, column: Column, floors: Floors) -> str:
    """By how much the best row's mean is better than the best floor."""
    floor, rows = highest(column, floors), rows_of(cells, attention, column.metric)
    if floor is None or not rows:
        return DASH
    sign = 1 if column.higher_is_better else -1
    by = max(sign * (mean(seeds.values()) - floor[1]) for seeds in rows.values())
    return f"{by:+.{column.digits}f}"


def floors_section(
    table: Table, cells: Cells, floors: Floors, examples: Mapping[str, int]
) -> list[str]:
    """The section on floors; empty where the data says none.

    examples: by metric, where it is a share of them.
    """
    if not floors:
        return []
    columns = [column for column in table.columns if column.metric in floors]
    names = dict.fromkeys(name for column in columns for name in floors[column.metric])
    lines = [
        [
            name,
            *(
                f"{floors[c.metric][name]:.{c.digits}f}" if name in floors[c.metric] else DASH
                for c in columns
            ),
        ]
        for name in names
    ]
    lines += [
        [
            f"best row under {table.name_of(attention)}, better by",
            *(_margin(cells, attention, column, floors) for column in columns),
        ]
        for attention in table.attentions
        if any(rows_of(cells, attention, column.metric) for column in columns)
    ]
    told = [
        f"**{table.name_of(attention).capitalize()}**: {'; '.join(said)}."
        for attention in table.attentions
        if (said := [t for c in columns if (t := none_rises(table, cells, attention, c, floors))])
    ]
    summary = "On the same examples, from the training data alone and without any model of ours."
    page = markdown_table(["", *(column.label for column in columns)], lines, left=1)
    counted = [_over_examples(table, a, cells, floors, examples) for a in table.attentions]
    if any(counted):
        told += [
            "Were other examples drawn: the rows that are better than a floor by an exact binomial "
            "test against its number (one-sided, p < 0.05 with Holm's correction over all of an "
            "attention; several seeds count by their mean). It counts the floor's number as known, "
            "though that is measured on the same examples, so it is generous; and it says nothing "
            "of other seeds.",
            *filter(None, counted),
        ]
    return ["## Floors", summary, page, *told]
