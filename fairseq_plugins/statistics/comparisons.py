"""Which rows can be told apart, and whether the paper has them in that order."""

import itertools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.inference import (
    Estimate,
    Seeds,
    Spread,
    difference,
    pooled_spread,
    together,
)

# The runs of a row under an attention: by metric the values by seed.
Cell = Mapping[str, Seeds]
Cells = Mapping[tuple[str, str], Cell]  # by (row, attention)


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def deviation(seeds: Seeds) -> float | None:
    """Sample standard deviation; None for a single value."""
    return statistics.stdev(seeds.values()) if len(seeds) > 1 else None


def gather(results: Iterable[Result], columns: Iterable[Column], suffix: str = "") -> Cells:
    """The columns' metrics by row and attention; `suffix` picks an evaluation ("_context_400")."""
    metrics = [column.metric for column in columns]
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for result in sorted(results, key=lambda result: result["seed"]):
        cell = found.setdefault((result["row"], result["attention"]), {})
        for metric in metrics:
            value = result["metrics"].get(metric + suffix)
            if value is not None:
                cell.setdefault(metric, {})[result["seed"]] = value
    return {place: cell for place, cell in found.items() if cell}


def rows_of(cells: Cells, attention: str, metric: str) -> dict[str, Seeds]:
    """The rows under an attention that have a metric, by name."""
    return {
        row: cell[metric] for (row, a), cell in cells.items() if a == attention and metric in cell
    }


def spread_of(cells: Cells, attention: str, metric: str) -> Spread | None:
    """What seeds do to a row under an attention; None where nothing says it."""
    return pooled_spread(rows_of(cells, attention, metric).values())


def against(
    table: Table, cells: Cells, attention: str, metric: str, reference: str = ""
) -> dict[str, Estimate]:
    """By row how much its metric is above that of the table's reference, or of another row.

    Holm's correction is over the rows of the table, and apart from these over those beyond it: how
    many encodings stand beside a paper's rows is no part of how sure these are.

    Empty where the reference has no result.
    """
    rows = rows_of(cells, attention, metric)
    own = rows.pop(reference or table.reference, None)
    if own is None:
        return {}
    spread = pooled_spread([own, *rows.values()])
    found = {name: difference([row], [own], spread) for name, row in rows.items()}
    return by_family(table, found)


def by_family(table: Table, found: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """With Holm's correction over the rows of a table, and apart from these over all others."""
    judged = together({name: one for name, one in found.items() if name in table.row_names})
    judged |= together({name: one for name, one in found.items() if name not in table.row_names})
    return {name: judged[name] for name in found}


@dataclass(frozen=True)
class Pair:
    """Two rows of which the paper has `better` before `worse` in the column that ranks them.

    paper_gap: by how much `worse` is worse in the paper. gap: the same here.
    """

    better: str
    worse: str
    paper_gap: float
    gap: Estimate

    @property
    def holds(self) -> bool | None:
        """Whether they stand in the paper's order here; None where they cannot be told apart."""
        return self.gap.effect > 0 if self.gap.is_apart else None


@dataclass(frozen=True)
class Agreement:
    """The paper's order against the order here, under one attention.

    pairs: every pair of rows that both have, the paper's best rows first.
    ranking: these rows, the paper's best first. spread: of the rows' seeds.
    """

    attention: str
    reference: str
    ranking: tuple[str, ...]
    pairs: tuple[Pair, ...]
    spread: Spread | None

    def count(self, holds: bool | None) -> int:
        """Pairs that hold, that are the other way round, or that are ties (None)."""
        return sum(pair.holds is holds for pair in self.pairs)

    @property
    def telling_pairs(self) -> list[Pair]:
        """Neighbours in the paper's ranking, and each row against the reference."""
        neighbours = set(itertools.pairwise(self.ranking))
        return [
            pair
            for pair in self.pairs
            if self.reference in (pair.better, pair.worse)
            or (pair.better, pair.worse) in neighbours
        ]

    @property
    def best(self) -> tuple[str, ...]:
        """The rows than which no other is told apart as better."""
        beaten = {
            pair.worse if pair.holds else pair.better for pair in self.pairs if pair.gap.is_apart
        }
        return tuple(row for row in self.ranking if row not in beaten)


def compare_orders(table: Table, cells: Cells, attention: str) -> Agreement:
    """Compare the order of the rows that both the paper and the results have.

    A row against the reference is judged as among all rows of the paper against it; the other
    pairs among each other.
    """
    metric, reference = table.ranked_by.metric, table.reference
    sign = -1 if table.ranked_by.higher_is_better else 1
    ours = rows_of(cells, attention, metric)
    paper = {
        row.name: sign * row.paper[attention][metric].mean
        for row in table.rows
        if metric in row.paper.get(attention, {}) and row.name in ours
    }
    ranking = tuple(sorted(paper, key=lambda name: paper[name]))
    spread = spread_of(cells, attention, metric)
    ordered = [p for p in itertools.combinations(ranking, 2) if paper[p[0]] < paper[p[1]]]
    gaps = together(
        {
            (better, worse): difference([ours[worse]], [ours[better]], spread).times(sign)
            for better, worse in ordered
            if reference not in (better, worse)
        }
    )
    for row, estimate in against(table, cells, attention, metric).items():
        gaps[reference, row] = estimate.times(sign)
        gaps[row, reference] = estimate.times(-sign)
    pairs = tuple(
        Pair(better, worse, paper[worse] - paper[better], gaps[better, worse])
        for better, worse in ordered
    )
    return Agreement(attention, reference, ranking, pairs, spread)


def judge_pairs(table: Table, cells: Cells, attention: str) -> dict[tuple[str, str], Estimate]:
    """Judge every two rows under an attention, as the table's page does where it has them.

    A row and the reference are judged as in `against`, two rows of the paper as in
    `compare_orders`, and all other pairs among each other: each p is after Holm's correction over
    those that are read together.

    Returns:
        By two rows, sorted by name, how much the first one's metric is above the second one's.
    """
    metric = table.ranked_by.metric
    sign = -1 if table.ranked_by.higher_is_better else 1
    rows, spread = rows_of(cells, attention, metric), spread_of(cells, attention, metric)
    agreement = compare_orders(table, cells, attention)
    judged = {(pair.worse, pair.better): pair.gap.times(sign) for pair in agreement.pairs}
    found = against(table, cells, attention, metric)
    judged |= {(row, table.reference): one for row, one in found.items()}
    pairs = list(itertools.combinations(sorted(rows), 2))
    rest = [pair for pair in pairs if not {pair, pair[::-1]} & judged.keys()]
    judged |= together({(a, b): difference([rows[a]], [rows[b]], spread) for a, b in rest})
    return {(a, b): judged.get((a, b)) or judged[b, a].times(-1) for a, b in pairs}


def against_none(
    table: Table, cells: Cells, attention: str
) -> tuple[list[str], list[str], list[str]] | None:
    """The rows better than row `none`, ties with it, and those worse; None without its result."""
    ranked_by = table.ranked_by
    if ranked_by.metric not in cells.get(("none", attention), {}):
        return None
    sign = -1 if ranked_by.higher_is_better else 1
    better: list[str] = []
    ties: list[str] = []
    worse: list[str] = []
    for row, estimate in against(table, cells, attention, ranked_by.metric, "none").items():
        if not estimate.is_apart:
            ties.append(row)
        else:
            (better if sign * estimate.effect < 0 else worse).append(row)
    return better, ties, worse
