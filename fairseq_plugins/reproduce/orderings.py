"""Which of the paper's orderings hold in the trained results, computed from both."""

import itertools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.stats import kendalltau, spearmanr

from fairseq_plugins.reproduce.results import Result
from fairseq_plugins.reproduce.tables import Table


@dataclass(frozen=True)
class Cell:
    """The runs of a row under an attention: perplexities of all seeds, in the seeds' order."""

    valid: tuple[float, ...]
    test: tuple[float, ...]

    @property
    def seeds(self) -> int:
        return len(self.test)


Cells = Mapping[tuple[str, str], Cell]  # by (row, attention)


def mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def deviation(values: tuple[float, ...]) -> float | None:
    """Sample standard deviation; None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def gather(results: Iterable[Result], suffix: str = "") -> dict[tuple[str, str], Cell]:
    """Perplexities by row and attention; `suffix` picks an evaluation ("_context_400")."""
    keys = f"valid_ppl{suffix}", f"test_ppl{suffix}"
    found: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for result in results:
        values = [result["metrics"].get(key) for key in keys]
        if None not in values:
            place = (result["row"], result["attention"])
            found.setdefault(place, []).append((result["seed"], *values))
    cells = {}
    for place, runs in found.items():
        _, valid, test = zip(*sorted(runs), strict=True)
        cells[place] = Cell(valid, test)
    return cells


@dataclass(frozen=True)
class Pair:
    """Two rows of which the paper has `better` below `worse` in test perplexity.

    paper_gap and gap: test perplexity of worse minus better, in the paper and here.
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
    paper = {
        row.name: row.paper[attention].test
        for row in table.rows
        if attention in row.paper and (row.name, attention) in cells
    }
    ours = {name: mean(cells[name, attention].test) for name in paper}
    ranking = tuple(sorted(paper, key=lambda name: paper[name]))
    usual = _usual_spread(cells, attention)
    pairs = tuple(
        Pair(
            better,
            worse,
            paper[worse] - paper[better],
            ours[worse] - ours[better],
            _spread(cells, attention, (better, worse), usual),
        )
        for better, worse in itertools.combinations(ranking, 2)
        if paper[better] < paper[worse]
    )
    kendall = spearman = None
    if len(ranking) > 2 and len(set(ours.values())) > 1:
        values = [paper[n] for n in ranking], [ours[n] for n in ranking]
        kendall = float(kendalltau(*values).statistic)
        spearman = float(spearmanr(*values).statistic)
    return Agreement(attention, ranking, pairs, kendall, spearman)


def _usual_spread(cells: Cells, attention: str) -> float | None:
    found = [deviation(cell.test) for (_, a), cell in cells.items() if a == attention]
    return max((s for s in found if s is not None), default=None)


def _spread(
    cells: Cells, attention: str, rows: tuple[str, str], usual: float | None
) -> float | None:
    """The larger deviation of two rows; the largest of all rows where either has one seed."""
    own = [deviation(cells[row, attention].test) for row in rows]
    known = [s for s in own if s is not None]
    return max(known) if len(known) == len(rows) else usual


def against_none(cells: Cells, attention: str) -> tuple[list[str], list[str]] | None:
    """The rows better and those not better than row `none`; None where it has no result."""
    if ("none", attention) not in cells:
        return None
    without = mean(cells["none", attention].test)
    better: list[str] = []
    worse: list[str] = []
    for (row, a), cell in cells.items():
        if a == attention and row != "none":
            (better if mean(cell.test) < without else worse).append(row)
    return better, worse
