"""What needs no model of ours, and whether any row is better than it."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.reproduce.experiments import EXPERIMENTS
from fairseq_plugins.reproduce.record.data import DataDescription
from fairseq_plugins.reproduce.record.results import Result
from fairseq_plugins.reproduce.report.orderings import Cells, rows_of, spread_of
from fairseq_plugins.reproduce.report.statistics import above, together

DASH = "-"
Floors = Mapping[str, Mapping[str, float]]  # by metric and by the name of what gives it


def floors_of(table: Table, results: Sequence[Result]) -> Floors:
    """The floors that the data of the results says; runs of a table have the same data."""
    experiment = EXPERIMENTS[table.experiment]
    for result in results:
        found = experiment.floors(DataDescription.model_validate(result["data"]))
        if found:
            return {c.metric: found[c.metric] for c in table.columns if found.get(c.metric)}
    return {}


def highest(column: Column, floors: Floors) -> tuple[str, float] | None:
    """The name and the number of the best floor of a column."""
    known = floors.get(column.metric)
    if not known:
        return None
    sign = 1 if column.higher_is_better else -1
    return max(known.items(), key=lambda item: sign * item[1])


def risen(cells: Cells, attention: str, column: Column, value: float) -> list[str]:
    """The rows that are better than a number beyond chance, with Holm's correction.

    By their numbers alone where no row has several seeds; orderings are then claimed nowhere.
    """
    spread = spread_of(cells, attention, column.metric)
    sign = 1 if column.higher_is_better else -1
    rows = rows_of(cells, attention, column.metric)
    found = together({name: above(row, value, spread) for name, row in rows.items()})
    sure = {name: one for name, one in found.items() if one.is_apart or spread is None}
    return [name for name, one in sure.items() if sign * one.effect > 0]


def none_rises(table: Table, cells: Cells, attention: str, column: Column, floors: Floors) -> str:
    """Says that no row of a column is better than its floor; empty where one is, or without one."""
    floor = highest(column, floors)
    if floor is None or not rows_of(cells, attention, column.metric):
        return ""
    name, value = floor
    if risen(cells, attention, column, value):
        return ""
    return (
        f"no row's {column.label} can be told apart as better than *{name}*, "
        f"{value:.{column.digits}f}"
    )


def floors_section(table: Table, cells: Cells, floors: Floors) -> list[str]:
    """The section on floors; empty where the data says none."""
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
    told = [
        f"**{attention.capitalize()} attention**: {'; '.join(said)}."
        for attention in table.attentions
        if (said := [t for c in columns if (t := none_rises(table, cells, attention, c, floors))])
    ]
    summary = "On the same examples, from the training data alone and without any model of ours."
    page = markdown_table(["", *(column.label for column in columns)], lines, left=1)
    return ["## Floors", summary, page, *told]
