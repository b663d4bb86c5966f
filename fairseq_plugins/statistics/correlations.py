"""Pearson correlations between properties of attention and performances (BERT paper, Table 5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.papers.bert import START_COSINE
from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PROPERTIES, ROWS
from fairseq_plugins.statistics.comparisons import Cells, rows_of
from fairseq_plugins.statistics.inference import (
    Estimate,
    Seeds,
    correct_all,
    correlation,
    partial_correlation,
)

LEAST_ROWS = 4  # with fewer, Fisher's transformation has no interval
ATTENTION = "vanilla"
RATIO = "direction_balance"  # a property that holds at 1; the others hold at 0
# The metrics of a property and of a performance; or a table and one of its metrics.
MetricPair = tuple[str, str]


@dataclass(frozen=True)
class Correlated:
    """A correlation over rows."""

    rows: tuple[str, ...]
    estimate: Estimate | None  # None for fewer than `LEAST_ROWS` rows, or if one side is constant


def over_rows(
    cells: Mapping[str, Cells],
    of: MetricPair,
    with_: MetricPair,
    attention: str,
    rows: Sequence[str],
    scale: str,
    violation: Callable[[float], float] = float,
    given: MetricPair | None = None,
) -> Correlated:
    """Correlate a property with a performance over rows.

    The property is that of the models that were fine-tuned, the performance a mean over seeds.

    Args:
        cells: of tables, by name.
        of: table and metric of the property.
        with_: table and metric of the performance.
        attention: of the rows.
        rows: names; a row without both numbers is left out.
        scale: of the cells; empty for a paper's own numbers.
        violation: maps the property to the number that is correlated.
        given: table and metric of a quantity that is held constant, a mean over seeds; None for
            a plain correlation.
    """
    first, second = (rows_of(cells.get(table, {}), attention, m) for table, m in (of, with_))
    own = {
        row: value
        for row, seeds in first.items()
        if (value := of_fine_tuned(seeds, scale)) is not None
    }
    held = second if given is None else rows_of(cells.get(given[0], {}), attention, given[1])
    found = tuple(row for row in rows if row in own and row in second and row in held)
    if len(found) < LEAST_ROWS:
        return Correlated(found, None)
    violations = [violation(own[row]) for row in found]
    performances = [fmean(second[row].values()) for row in found]
    if given is None:
        return Correlated(found, correlation(violations, performances))
    constant = [fmean(held[row].values()) for row in found]
    return Correlated(found, partial_correlation(violations, performances, constant))


def start_similarity(table: str) -> MetricPair:
    """Return the metric of a table for the similarity of its models to the published one."""
    return table, START_COSINE.metric


def of_fine_tuned(seeds: Seeds, scale: str) -> float | None:
    """Return a property of the models that Tables 3 and 4 fine-tune; None without one.

    At `published` each seed fine-tunes a model of its own: the mean over seeds. Elsewhere all
    fine-tune the model of seed 1. A paper's number has seed 0.
    """
    if scale == PUBLISHED:
        return fmean(seeds.values()) if seeds else None
    return seeds.get(1, seeds.get(0))


def correlate(
    cells: Mapping[str, Cells], scale: str, *, hold_similarity: bool = False
) -> dict[MetricPair, Correlated]:
    """Correlate every property with every performance, with Holm's correction over all.

    hold_similarity: compute partial correlations, which control for the similarity to the published
    model.
    """
    found = {
        (own.metric, column.metric): over_rows(
            cells,
            ("bert_table2", own.metric),
            (table, column.metric),
            ATTENTION,
            ROWS,
            scale,
            given=start_similarity(table) if hold_similarity else None,
        )
        for own in PROPERTIES
        for table, column in PERFORMANCES
    }
    judged = correct_all({pair: c.estimate for pair, c in found.items() if c.estimate})
    return {pair: replace(one, estimate=judged.get(pair)) for pair, one in found.items()}
