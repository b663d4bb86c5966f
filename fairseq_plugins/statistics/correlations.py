"""Pearson correlations between properties of attention and performances (BERT paper, Table 5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_correlations import (
    PERFORMANCES,
    PROPERTIES,
    ROWS,
)
from fairseq_plugins.statistics.comparisons import Cells, mean, rows_of
from fairseq_plugins.statistics.floors import Floors, none_rises
from fairseq_plugins.statistics.inference import Estimate, Seeds, correlation, together

LEAST_ROWS = 4  # with fewer, Fisher's transformation has no interval


STARTED_FROM = 1  # Tables 3 and 4 fine-tune the models of this seed, whatever their own


ATTENTION = "vanilla"


RATIO = "direction_balance"  # the property that is met at 1; the others are at 0


Place = tuple[str, str]  # metric of a property, metric of a performance


@dataclass(frozen=True)
class Correlated:
    """A correlation, and the rows that it is over.

    estimate: None where there are fewer than `LEAST_ROWS`, or where one side is all the same.
    """

    rows: tuple[str, ...]
    estimate: Estimate | None


def over_rows(
    cells: Mapping[str, Cells],
    of: Place,
    with_: Place,
    attention: str,
    rows: Sequence[str],
    violation: Callable[[float], float] = float,
) -> Correlated:
    """Pearson's correlation of a property with a performance over rows, each counted once.

    The property is that of the model that was fine-tuned, the performance a mean over seeds.

    Args:
        cells: of tables, by name.
        of: table and metric of the property.
        with_: of the performance.
        attention: of the rows.
        rows: those that may count; what lacks one of the numbers does not.
        violation: of the property's number, as it is correlated.
    """
    first, second = (rows_of(cells.get(table, {}), attention, m) for table, m in (of, with_))
    own = {
        row: value for row, seeds in first.items() if (value := _of_the_start(seeds)) is not None
    }
    found = tuple(row for row in rows if row in own and row in second)
    if len(found) < LEAST_ROWS:
        return Correlated(found, None)
    performances = [mean(second[row].values()) for row in found]
    return Correlated(found, correlation([violation(own[row]) for row in found], performances))


def _of_the_start(seeds: Seeds) -> float | None:
    """A paper's number is of a seed of its own, 0."""
    return seeds.get(STARTED_FROM, seeds.get(0))


def correlate(cells: Mapping[str, Cells]) -> dict[Place, Correlated]:
    """Every property with every performance, with Holm's correction over all that are there."""
    found = {
        (own.metric, column.metric): over_rows(
            cells, ("bert_table2", own.metric), (table, column.metric), ATTENTION, ROWS
        )
        for own in PROPERTIES
        for table, column in PERFORMANCES
    }
    judged = together({pair: c.estimate for pair, c in found.items() if c.estimate})
    return {pair: replace(one, estimate=judged.get(pair)) for pair, one in found.items()}


def lost_columns(cells: Mapping[str, Cells], floors: Mapping[str, Floors]) -> dict[str, str]:
    """By metric the performances in which no row is better than what needs no model, and why."""
    found = {}
    for name, column in PERFORMANCES:
        table, known = TABLES[name], floors.get(name, {})
        if why := none_rises(table, cells.get(name, {}), ATTENTION, column, known):
            found[column.metric] = why
    return found
