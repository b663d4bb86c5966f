"""Trivial baselines (majority class, unigrams, ...) and which rows beat them."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import Cells, by_family, rows_of, spread_of
from fairseq_plugins.statistics.inference import above

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
