"""Which of the paper's orderings hold in the trained results, computed from both."""

import itertools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.stats import kendalltau, spearmanr, ttest_ind

from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.reproduce.record.results import Result

# The runs of a row under an attention: by metric the values of all seeds, in the seeds' order.
Cell = Mapping[str, tuple[float, ...]]
Cells = Mapping[tuple[str, str], Cell]  # by (row, attention)


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def deviation(values: tuple[float, ...]) -> float | None:
    """Sample standard deviation; None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def gather(
    results: Iterable[Result], columns: Iterable[Column], suffix: str = ""
) -> dict[tuple[str, str], Cell]:
    """The columns' metrics by row and attention; `suffix` picks an evaluation ("_context_400")."""
    metrics = [column.metric for column in columns]
    found: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    for result in sorted(results, key=lambda result: result["seed"]):
        cell = found.setdefault((result["row"], result["attention"]), {})
        for metric in metrics:
            value = result["metrics"].get(metric + suffix)
            if value is not None:
                cell[metric] = (*cell.get(metric, ()), value)
    return {place: cell for place, cell in found.items() if cell}


@dataclass(frozen=True)
class Pair:
    """Two rows of which the paper has `better` before `worse` in the column that ranks them.

    paper_gap and gap: by how much `worse` is worse, in the paper and here.
    spread: what seeds alone do to such a row; None where no row has two seeds.
    """

    better: str
    worse: str
    paper_gap: float
    gap: float
    spread: float | None

    @property
    def holds(self) -> bool:
        return self.gap > 0

    @property
    def beyond_spread(self) -> bool | None:
        return None if self.spread is None else abs(self.gap) > self.spread


@dataclass(frozen=True)
class Agreement:
    """The paper's order against the order here, under one attention.

    pairs: every pair of rows that both have, the paper's best rows first.
    ranking: these rows, the paper's best first. kendall, spearman: None for under three
    rows and where all of ours are equal.
    """

    attention: str
    ranking: tuple[str, ...]
    pairs: tuple[Pair, ...]
    kendall: float | None
    spearman: float | None

    @property
    def holding(self) -> int:
        return sum(pair.holds for pair in self.pairs)

    @property
    def telling_pairs(self) -> list[Pair]:
        """Neighbours in the paper's ranking, and each row against `base`."""
        neighbours = set(itertools.pairwise(self.ranking))
        return [
            pair
            for pair in self.pairs
            if "base" in (pair.better, pair.worse) or (pair.better, pair.worse) in neighbours
        ]


def compare_orders(table: Table, cells: Cells, attention: str) -> Agreement:
    """Compare the order of the rows that both the paper and the results have."""
    metric = table.ranked_by.metric
    sign = -1 if table.ranked_by.higher_is_better else 1
    paper = {
        row.name: sign * row.paper[attention][metric].mean
        for row in table.rows
        if metric in row.paper.get(attention, {}) and metric in cells.get((row.name, attention), {})
    }
    ours = {name: sign * mean(cells[name, attention][metric]) for name in paper}
    ranking = tuple(sorted(paper, key=lambda name: paper[name]))
    values = {place: cell[metric] for place, cell in cells.items() if metric in cell}
    usual = _usual_spread(values, attention)
    pairs = tuple(
        Pair(
            better,
            worse,
            paper[worse] - paper[better],
            ours[worse] - ours[better],
            _spread(values, attention, (better, worse), usual),
        )
        for better, worse in itertools.combinations(ranking, 2)
        if paper[better] < paper[worse]
    )
    kendall = spearman = None
    if len(ranking) > 2 and len(set(ours.values())) > 1:
        both = [paper[n] for n in ranking], [ours[n] for n in ranking]
        kendall = float(kendalltau(*both).statistic)
        spearman = float(spearmanr(*both).statistic)
    return Agreement(attention, ranking, pairs, kendall, spearman)


Values = Mapping[tuple[str, str], tuple[float, ...]]  # of all seeds, by (row, attention)


def _usual_spread(values: Values, attention: str) -> float | None:
    found = [deviation(seeds) for (_, a), seeds in values.items() if a == attention]
    return max((s for s in found if s is not None), default=None)


def _spread(
    values: Values, attention: str, rows: tuple[str, str], usual: float | None
) -> float | None:
    """The larger deviation of two rows; the largest of all rows where either has one seed."""
    own = [deviation(values[row, attention]) for row in rows]
    known = [s for s in own if s is not None]
    return max(known) if len(known) == len(rows) else usual


def against_none(
    cells: Cells, attention: str, ranked_by: Column
) -> tuple[list[str], list[str]] | None:
    """The rows better and those not better than row `none`; None where it has no result."""
    if ranked_by.metric not in cells.get(("none", attention), {}):
        return None
    sign = -1 if ranked_by.higher_is_better else 1
    without = sign * mean(cells["none", attention][ranked_by.metric])
    better: list[str] = []
    worse: list[str] = []
    for (row, a), cell in cells.items():
        if a == attention and row != "none" and ranked_by.metric in cell:
            is_better = sign * mean(cell[ranked_by.metric]) < without
            (better if is_better else worse).append(row)
    return better, worse


def differs_from(
    cells: Cells, place: tuple[str, str], reference: tuple[str, str], metric: str
) -> float | None:
    """The p-value of the hypothesis that a row's seeds have the mean of the reference's.

    Of the two-sided t-test of unequal variances; None where either has a single seed.
    """
    own, other = (cells.get(p, {}).get(metric, ()) for p in (place, reference))
    if place == reference or min(len(own), len(other)) < 2:
        return None
    return float(ttest_ind(own, other, equal_var=False).pvalue)
