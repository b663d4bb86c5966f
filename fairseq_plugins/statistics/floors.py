"""Trivial baselines (majority class, unigrams, ...) as the data of results describes them."""

from collections.abc import Mapping, Sequence

from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.results import Result

Floors = Mapping[str, Mapping[str, float]]  # by metric and by the baseline's name


def floors_of(table: Table, results: Sequence[Result]) -> Floors:
    """Read the baselines from the data descriptions of results.

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
    """Return by metric the number of examples measured on, where the metric is a share of them."""
    experiment = EXPERIMENTS[table.experiment]
    for result in results:
        found = experiment.examples(DataDescription.model_validate(result["data"]), result["scale"])
        if found:
            return found
    return {}


def best_floor(column: Column, floors: Floors) -> tuple[str, float] | None:
    """Return the name and the number of a column's best baseline; None without any."""
    known = floors.get(column.metric)
    if not known:
        return None
    sign = 1 if column.higher_is_better else -1
    return max(known.items(), key=lambda item: sign * item[1])
