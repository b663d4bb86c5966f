"""A table's results with every comparison that pages show, each computed once."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import Cells, correct_by_family, gather, rows_of
from fairseq_plugins.statistics.inference import (
    Estimate,
    Seeds,
    Spread,
    above,
    correct_all,
    difference,
    pooled_spread,
)

TIE, BETTER, WORSE, ONE_SEED = "tie", "better", "worse", "one seed"
NONE = "none"  # the row without any encoding

Baselines = Mapping[str, Mapping[str, float]]  # by metric and by the name of a trivial baseline

P = ParamSpec("P")
R = TypeVar("R")


def _once(
    method: Callable[Concatenate["JudgedTable", P], R],
) -> Callable[Concatenate["JudgedTable", P], R]:
    """Cache the results of a method of a judged table, by its arguments."""

    @functools.wraps(method)
    def cached(self: "JudgedTable", *args: P.args, **kwargs: P.kwargs) -> R:
        key = (method.__name__, args, *sorted(kwargs.items()))
        if key not in self._cache:
            self._cache[key] = method(self, *args, **kwargs)
        found: R = self._cache[key]  # type: ignore[assignment]
        return found

    return cached


def baselines_of(table: Table, results: Sequence[Result]) -> Baselines:
    """Read the baselines from the data descriptions of results.

    Runs of a table have the same data, but earlier descriptions may have fewer baselines. Where
    they differ, the description with the most baselines counts.
    """
    experiment = EXPERIMENTS[table.experiment]
    described = (
        experiment.baselines(DataDescription.model_validate(r["data"]), r["scale"]) for r in results
    )
    baselines: dict[str, dict[str, float]] = {}
    for found in sorted(described, key=lambda one: sum(map(len, one.values()))):
        for metric, known in found.items():
            baselines.setdefault(metric, {}).update(known)
    return {c.metric: baselines[c.metric] for c in table.columns if baselines.get(c.metric)}


def examples_of(table: Table, results: Sequence[Result]) -> Mapping[str, int]:
    """Return the number of scored examples of each metric that is a share of examples."""
    experiment = EXPERIMENTS[table.experiment]
    for result in results:
        found = experiment.examples(DataDescription.model_validate(result["data"]), result["scale"])
        if found:
            return found
    return {}


def best_baseline(column: Column, baselines: Baselines) -> tuple[str, float] | None:
    """Return the name and the number of a column's best baseline; None without any."""
    known = baselines.get(column.metric)
    if not known:
        return None
    sign = 1 if column.higher_is_better else -1
    return max(known.items(), key=lambda item: sign * item[1])


@dataclass(frozen=True)
class Pair:
    """Two rows, `better` and `worse` in the paper's ranking."""

    better: str
    worse: str
    paper_gap: float  # how much worse `worse` is in the paper
    gap: Estimate  # the same in the results

    @property
    def holds(self) -> bool | None:
        """Return whether the results have the paper's order; None for a tie."""
        return self.gap.effect > 0 if self.gap.is_significant else None


@dataclass(frozen=True)
class Agreement:
    """The paper's order of rows and the order of the results, under one attention."""

    attention: str
    ranking: tuple[str, ...]  # the rows that both have, the paper's best first
    pairs: tuple[Pair, ...]  # every two of these rows, in the order of the ranking

    def count(self, holds: bool | None) -> int:
        """Count the pairs whose order holds (True), is reversed (False), or that tie (None)."""
        return sum(pair.holds is holds for pair in self.pairs)

    def listed_pairs(self, reference: str) -> list[Pair]:
        """Return the pairs of neighbours in the paper's ranking, and those with the reference."""
        neighbours = set(itertools.pairwise(self.ranking))
        return [
            pair
            for pair in self.pairs
            if reference in (pair.better, pair.worse) or (pair.better, pair.worse) in neighbours
        ]


@dataclass(frozen=True, eq=False)
class JudgedTable:
    """The cells of a table with tests of their differences.

    Pages, the site and its comparison format these numbers; none of them tests anything itself.
    Holm's correction of p-values covers these families, and each pair belongs to the first that has
    it: the paper's rows against the reference, the rows beyond the paper against it, both again
    against `none`, all other pairs of the paper's rows, and all remaining pairs. A table without a
    reference has the last two alone.
    """

    table: Table
    cells: Cells  # by row and attention, then by metric and by seed
    baselines: Baselines = field(default_factory=dict)  # by metric and name
    examples: Mapping[str, int] = field(default_factory=dict)  # by metric that is a share of them
    results: Sequence[Result] = ()  # of the cells
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: Table, results: Sequence[Result], suffix: str = "") -> "JudgedTable":
        """Judge a table's results; `suffix` picks an evaluation, as "_context_400"."""
        cells = gather(results, table.columns, suffix)
        return cls(table, cells, baselines_of(table, results), examples_of(table, results), results)

    @property
    def sign(self) -> int:
        """1 where a larger number of the ranking column is better, else -1."""
        return 1 if self.table.ranked_by.higher_is_better else -1

    @_once
    def rows(self, attention: str, metric: str = "") -> dict[str, Seeds]:
        """Return the values of a metric by row (the ranking column's, if none is given)."""
        return rows_of(self.cells, attention, metric or self.table.ranked_by.metric)

    @_once
    def spread(self, attention: str, metric: str = "") -> Spread | None:
        """Pool the deviation between seeds over rows; None if no row has several."""
        return pooled_spread(self.rows(attention, metric).values())

    @_once
    def against(self, attention: str, metric: str = "", reference: str = "") -> dict[str, Estimate]:
        """Compare every row with a reference row (the table's, if none is given).

        Returns:
            By row its metric minus the reference's; empty where the reference has no result.
            With another reference than the table's, the table's own is left out, since `against`
            without arguments compares the two.
        """
        rows = dict(self.rows(attention, metric))
        own = rows.pop(reference or self.table.reference, None)
        if own is None:
            return {}
        rows.pop(self.table.reference, None)
        spread = self.spread(attention, metric)
        found = {name: difference([row], [own], spread) for name, row in rows.items()}
        return correct_by_family(self.table, found)

    @_once
    def against_references(self, attention: str) -> dict[tuple[str, str], Estimate]:
        """Compare every row in the ranking column with the reference and with `none`.

        Returns:
            The first row's number minus the second's, by the two rows in either order.
        """
        found: dict[tuple[str, str], Estimate] = {}
        for reference in (self.table.reference, NONE) if self.table.reference else ():
            for row, one in self.against(attention, "", reference).items():
                found[row, reference], found[reference, row] = one, one.signed(-1)
        return found

    @_once
    def agreement(self, attention: str) -> Agreement:
        """Compare the order of the rows that both the paper and the results have."""
        table, metric = self.table, self.table.ranked_by.metric
        ours, sign = self.rows(attention), -self.sign
        paper = {
            row.name: sign * row.paper[attention][metric].mean
            for row in table.rows
            if metric in row.paper.get(attention, {}) and row.name in ours
        }
        ranking = tuple(sorted(paper, key=lambda name: paper[name]))
        spread, known = self.spread(attention), self.against_references(attention)
        ordered = [p for p in itertools.combinations(ranking, 2) if paper[p[0]] < paper[p[1]]]
        rest = correct_all(
            {
                (worse, better): difference([ours[worse]], [ours[better]], spread)
                for better, worse in ordered
                if (worse, better) not in known
            }
        )
        found = known | rest
        pairs = tuple(
            Pair(better, worse, paper[worse] - paper[better], found[worse, better].signed(sign))
            for better, worse in ordered
        )
        return Agreement(attention, ranking, pairs)

    @_once
    def pairs(self, attention: str) -> dict[tuple[str, str], Estimate]:
        """Compare every pair of rows in the ranking column.

        Returns:
            The first row's number minus the second's, by pair of rows in the order of their names.
        """
        rows, spread = self.rows(attention), self.spread(attention)
        judged = {
            (pair.worse, pair.better): pair.gap.signed(-self.sign)
            for pair in self.agreement(attention).pairs
        }
        judged |= self.against_references(attention)
        pairs = list(itertools.combinations(sorted(rows), 2))
        rest = [pair for pair in pairs if not {pair, pair[::-1]} & judged.keys()]
        judged |= correct_all({(a, b): difference([rows[a]], [rows[b]], spread) for a, b in rest})
        return {(a, b): judged.get((a, b)) or judged[b, a].signed(-1) for a, b in pairs}

    def pair(self, attention: str, first: str, second: str) -> Estimate | None:
        """Return the difference of two rows in the ranking column; None if one is missing."""
        pairs = self.pairs(attention)
        if (first, second) in pairs:
            return pairs[first, second]
        found = pairs.get((second, first))
        return None if found is None else found.signed(-1)

    def unbeaten(self, attention: str) -> tuple[str, ...]:
        """Return the paper's rows that none of them significantly beats, in the paper's order."""
        ranking = self.agreement(attention).ranking
        beaten = {
            row
            for row, other in itertools.permutations(ranking, 2)
            if (one := self.pair(attention, row, other)) and self.verdict(one) == WORSE
        }
        return tuple(row for row in ranking if row not in beaten)

    def verdict(self, estimate: Estimate) -> str:
        """Name the verdict on a difference in the ranking column: the first row's."""
        if estimate.p is None:
            return ONE_SEED
        if not estimate.is_significant:
            return TIE
        return BETTER if self.sign * estimate.effect > 0 else WORSE

    def against_none(self, attention: str) -> dict[str, list[str]]:
        """List the rows by their verdict against row `none`; empty if that has no result."""
        found: dict[str, list[str]] = {}
        known = self.against_references(attention)
        for row in self.rows(attention):
            if (row, NONE) in known:
                word = self.verdict(known[row, NONE])
                found.setdefault(TIE if word == ONE_SEED else word, []).append(row)
        return found

    @_once
    def within_rows(self, reference: str) -> dict[tuple[str, str], Estimate]:
        """Compare each row with itself under another attention, with Holm's correction over all.

        Without three common seeds the test uses the deviation pooled over both attentions' rows.

        Args:
            reference: the attention that the others are compared with.

        Returns:
            By row and attention, its ranking metric minus that under the reference.
        """
        theirs = self.rows(reference)
        found: dict[tuple[str, str], Estimate] = {}
        for attention in self.table.attentions:
            ours = self.rows(attention) if attention != reference else {}
            spread = pooled_spread([*ours.values(), *theirs.values()])
            for row in self.table.row_names:
                if row in ours and row in theirs:
                    found[row, attention] = difference([ours[row]], [theirs[row]], spread)
        return correct_all(found)

    @_once
    def rows_above(self, attention: str, column: Column, value: float) -> list[str]:
        """List the rows that are significantly better than a number.

        Where no row has several seeds, the means alone are compared; pages then claim no order.
        """
        spread = self.spread(attention, column.metric)
        sign = 1 if column.higher_is_better else -1
        rows = self.rows(attention, column.metric)
        found = correct_by_family(
            self.table, {name: above(row, value, spread) for name, row in rows.items()}
        )
        sure = {name: one for name, one in found.items() if one.is_significant or spread is None}
        return [name for name, one in sure.items() if sign * one.effect > 0]

    @_once
    def no_row_above_baseline(self, attention: str, column: Column) -> str:
        """State that no row of a column beats its best baseline; empty where one does."""
        baseline = best_baseline(column, self.baselines)
        if baseline is None or not self.rows(attention, column.metric):
            return ""
        name, value = baseline
        if self.rows_above(attention, column, value):
            return ""
        return (
            f"no row's {column.label} is significantly better than that of *{name}*, "
            f"{value:.{column.digits}f}"
        )
