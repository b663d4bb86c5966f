"""Pearson correlations between properties of attention and performances (BERT paper, Table 5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PROPERTIES, ROWS
from fairseq_plugins.statistics.comparisons import Cells, mean, rows_of
from fairseq_plugins.statistics.inference import Estimate, Seeds, correlation, together

LEAST_ROWS = 4  # with fewer, Fisher's transformation has no interval
STARTED_FROM = 1  # Tables 3 and 4 fine-tune the models of this seed, whatever their own
ATTENTION = "vanilla"
RATIO = "direction_balance"  # the property that is met at 1; the others are at 0
# The metrics of a property and of a performance; or a table and a metric of it.
MetricPair = tuple[str, str]


@dataclass(frozen=True)
class Correlated:
    """A correlation over rows.

    Attributes:
        rows: names of the rows.
        estimate: None for fewer than `LEAST_ROWS` rows, or if one side is constant.
    """

    rows: tuple[str, ...]
    estimate: Estimate | None


def over_rows(
    cells: Mapping[str, Cells],
    of: MetricPair,
    with_: MetricPair,
    attention: str,
    rows: Sequence[str],
    violation: Callable[[float], float] = float,
) -> Correlated:
    """Correlate a property with a performance over rows.

    The property is that of the model that was fine-tuned, the performance a mean over seeds.

    Args:
        cells: of tables, by name.
        of: table and metric of the property.
        with_: of the performance.
        attention: of the rows.
        rows: names; a row without both numbers is left out.
        violation: maps the property to the number that is correlated.
    """
    first, second = (rows_of(cells.get(table, {}), attention, m) for table, m in (of, with_))
    own = {
        row: value
        for row, seeds in first.items()
        if (value := seed_of_the_start(seeds)) is not None
    }
    found = tuple(row for row in rows if row in own and row in second)
    if len(found) < LEAST_ROWS:
        return Correlated(found, None)
    performances = [mean(second[row].values()) for row in found]
    return Correlated(found, correlation([violation(own[row]) for row in found], performances))


def seed_of_the_start(seeds: Seeds) -> float | None:
    """Return the value of the seed that fine-tuning starts from; a paper's number has seed 0."""
    return seeds.get(STARTED_FROM, seeds.get(0))


def correlate(cells: Mapping[str, Cells]) -> dict[MetricPair, Correlated]:
    """Correlate every property with every performance, with Holm's correction over all."""
    found = {
        (own.metric, column.metric): over_rows(
            cells, ("bert_table2", own.metric), (table, column.metric), ATTENTION, ROWS
        )
        for own in PROPERTIES
        for table, column in PERFORMANCES
    }
    judged = together({pair: c.estimate for pair, c in found.items() if c.estimate})
    return {pair: replace(one, estimate=judged.get(pair)) for pair, one in found.items()}
