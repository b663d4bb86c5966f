"""Differences between all pairs of rows trained with the same seeds, as text, page and picture."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq_plugins.common.files import with_ending
from fairseq_plugins.common.pages import Page, bullets
from fairseq_plugins.common.tables import columns, markdown_table
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.differences import interval, p_is, probability
from fairseq_plugins.report.lines import cell_text
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.inference import Estimate, Seeds, widen_by_holm
from fairseq_plugins.statistics.judged import Baselines, JudgedTable, best_baseline
from fairseq_plugins.statistics.series import average

WIDTH = 41  # of the picture in the terminal, in characters
Losses = Mapping[str, Sequence[Mapping[int, float]]]  # by row and run: base-2 loss by updates


@dataclass(frozen=True)
class PairwiseRuns:
    """Rows, their values at the seeds that all of them have, and the difference of every pair."""

    rows: tuple[str, ...]  # in the requested order
    column: Column
    values: Mapping[str, Seeds]  # by row
    estimates: Mapping[tuple[str, str], Estimate]  # second row minus first; Holm's correction
    baseline: tuple[str, float] | None = None  # name and value of the best trivial one

    @property
    def seeds(self) -> list[int]:
        return sorted(self.values[self.rows[0]])

    def differences(self, first: str, second: str) -> dict[int, float]:
        """Return the second row minus the first, by seed."""
        own, other = self.values[second], self.values[first]
        return {seed: own[seed] - other[seed] for seed in self.seeds}

    def verdict(self, first: str, second: str) -> str:
        """Say which of two rows is better, in a sentence."""
        estimate = self.estimates[first, second]
        if estimate.p is None and len(self.seeds) > 1:
            seeds = f"{len(self.seeds)} seeds, so their difference cannot be tested"
            return f"{first} and {second} do not vary over {seeds}."
        if estimate.p is None:
            return f"{first} and {second} have one seed, so their difference cannot be tested."
        if not estimate.is_significant:
            return (
                f"{first} and {second} do not differ significantly in these runs "
                f"({p_is(estimate.adjusted)})."
            )
        is_second = (estimate.effect > 0) == self.column.higher_is_better
        better, worse = (second, first) if is_second else (first, second)
        return f"{better} is better than {worse} ({p_is(estimate.adjusted)})."

    def summary(self) -> str:
        """Format the means of all rows in a line, the best one first."""
        sign = -1 if self.column.higher_is_better else 1
        means = {row: fmean(self.values[row].values()) for row in self.rows}
        ranked = sorted(self.rows, key=lambda row: sign * means[row])
        numbers = ", ".join(f"{row} {means[row]:.{self.column.digits}f}" for row in ranked)
        return f"{self.column.label}: {numbers}"

    def text(self) -> str:
        """Format numbers, differences and verdicts for a terminal, of two rows with a picture."""
        cells = [["", self.column.label], *([row, self._cell(row)] for row in self.rows)]
        if len(self.rows) == 2:
            ((pair, estimate),) = self.estimates.items()
            effect = f"{estimate.effect:+z.{self.column.digits}f}"
            cells += [[_minus(pair), effect]]
            cells += [["95 % interval", interval(estimate, self.column.digits)]]
            shown = [columns(cells, left=1), "", *self.picture()]
        else:
            shown = [columns(cells, left=1), "", columns([_HEADER, *self._lines()], left=1)]
        return "\n".join([self._heading(), "", *shown, "", *self._verdicts(), "", self._about()])

    def page(self, title: str, *below: str) -> Page:
        """Make the page with numbers, differences, verdicts and further paragraphs `below`."""
        cells = [[f"`{row}`", self._cell(row)] for row in self.rows]
        result = [
            markdown_table(["encoding", self.column.label], cells, left=1),
            markdown_table(_HEADER, self._lines(), left=1),
            bullets(self._verdicts()),
            self._about(),
            *below,
        ]
        return Page(title, f"{self._heading()}.", result)

    def _verdicts(self) -> list[str]:
        """Say which rows are better, and which are no better than the baseline."""
        verdicts = [self.verdict(*pair) for pair in self.estimates]
        if self.baseline is None:
            return verdicts
        name, value = self.baseline
        sign = 1 if self.column.higher_is_better else -1
        low = [row for row in self.rows if sign * (fmean(self.values[row].values()) - value) <= 0]
        if low:
            verdicts.append(
                f"No better than the baseline *{name}* ({value:.{self.column.digits}f}), a model "
                f"without context: {', '.join(low)}. Train longer to compare them."
            )
        return verdicts

    def _about(self) -> str:
        about = (
            "Means over seeds ± standard deviation (number of seeds). Differences are paired by "
            "seed, with 95 % intervals and p of a t-test (of two seeds, by the pooled standard "
            "deviation)"
        )
        if len(self.estimates) == 1:
            return f"{about}."
        return f"{about}; both are corrected over all {len(self.estimates)} pairs by Holm's method."

    def _heading(self) -> str:
        better, count = "higher" if self.column.higher_is_better else "lower", len(self.seeds)
        return f"{self.column.label}, {better} is better; {count} paired seed{'s'[: count != 1]}"

    def _cell(self, row: str) -> str:
        return cell_text(self.values[row], self.column.digits)

    def _lines(self) -> list[list[str]]:
        digits = self.column.digits
        return [
            [
                _minus(pair),
                f"{one.effect:+z.{digits}f}",
                interval(one, digits),
                probability(one.adjusted),
            ]
            for pair, one in self.estimates.items()
        ]

    def picture(self) -> list[str]:
        """Draw each seed's difference of two rows and its mean with the interval, as text."""
        ((pair, estimate),) = self.estimates.items()
        differences = self.differences(*pair)
        low = estimate.effect if estimate.low is None else estimate.low
        high = estimate.effect if estimate.high is None else estimate.high
        shown = [*differences.values(), low, high, 0.0]
        least, most = min(shown), max(shown)
        scale = (WIDTH - 1) / ((most - least) or 1.0)

        def at(value: float) -> int:
            return round((value - least) * scale)

        lines = []
        for seed, value in differences.items():
            marks = {at(0.0): "|", at(value): "o"}
            lines.append(f"  {f'seed {seed}':<8} {_line(marks)}  {value:+z.{self.column.digits}f}")
        spread = dict.fromkeys(range(at(low), at(high) + 1), "-")
        marks = {**spread, at(low): "[", at(high): "]", at(0.0): "|", at(estimate.effect): "O"}
        own = f"{estimate.effect:+z.{self.column.digits}f}"
        return [*lines, f"  {'mean':<8} {_line(marks)}  {own}"]


_HEADER = ["difference", "mean", "95 % interval", "p (Holm)"]


def _minus(pair: tuple[str, str]) -> str:
    return f"{pair[1]} - {pair[0]}"


def _line(marks: Mapping[int, str]) -> str:
    return "".join(marks.get(place, " ") for place in range(WIDTH))


def compare(
    rows: Sequence[str],
    attention: str,
    table: Table,
    results: Sequence[Result],
    baselines: Baselines | None = None,
) -> PairwiseRuns:
    """Compare every pair of rows of a study at the seeds that all of them have.

    Raises:
        ValueError: they have no seed in common.
    """
    column = table.ranked_by
    seeds = [
        {
            result["seed"]
            for result in results
            if (result["row"], result["attention"]) == (row, attention)
            and column.metric in result["metrics"]
        }
        for row in rows
    ]
    common = set.intersection(*seeds)
    if not common:
        raise ValueError(f"{' and '.join(rows)} have no seed with finished runs in common.")
    shared = [r for r in results if r["row"] in rows and r["seed"] in common]
    # Without a reference row and a paper's rows, all pairs are corrected together.
    judged = JudgedTable(replace(table, rows=(), reference=""), gather(shared, [column]))
    estimates = {}
    for first, second in itertools.combinations(rows, 2):
        estimate = judged.pair(attention, second, first)
        assert estimate is not None, "both have results"
        estimates[first, second] = estimate
    baseline = best_baseline(column, baselines or {})
    corrected = widen_by_holm(estimates)
    return PairwiseRuns(tuple(rows), column, judged.rows(attention), corrected, baseline)


def draw(pairwise: PairwiseRuns, losses: Losses, stem: Path) -> list[Path]:
    """Draw differences and training losses; return PNG and SVG, [] without matplotlib."""
    try:
        from matplotlib.figure import Figure

        from fairseq_plugins.common.pictures import save_picture
    except ImportError:
        return []
    picture = Figure(figsize=(10, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    for row in pairwise.rows:
        if curve := average(losses.get(row, ())):
            perplexities = [2**loss for _, loss in curve]
            left.plot([step for step, _ in curve], perplexities, label=row, linewidth=1.5)
    left.set(xlabel="updates", ylabel="training perplexity, mean over seeds", yscale="log")
    left.legend()
    _draw_differences(pairwise, right)
    for panel in (left, right):
        panel.grid(alpha=0.3)
    save_picture(picture, stem)
    return [with_ending(stem, ".png"), with_ending(stem, ".svg")]


def _draw_differences(pairwise: PairwiseRuns, panel: Any) -> None:
    """Draw each pair's mean difference with its interval; of a single pair also each seed's."""
    label = f"difference in {pairwise.column.label}, 95 % interval"
    if len(pairwise.estimates) == 1:
        (pair,) = pairwise.estimates
        seeds, values = zip(*pairwise.differences(*pair).items(), strict=True)
        panel.plot(values, [f"seed {seed}" for seed in seeds], "o", color="tab:grey")
        label = f"{pairwise.column.label}: {pair[1]} minus {pair[0]}, 95 % interval"
    for pair, one in pairwise.estimates.items():
        name = "mean" if len(pairwise.estimates) == 1 else _minus(pair)
        reach = None
        if one.low is not None and one.high is not None:
            reach = [[one.effect - one.low], [one.high - one.effect]]
        panel.errorbar([one.effect], [name], xerr=reach, fmt="o", capsize=5, color="tab:blue")
    panel.axvline(0.0, color="black", linewidth=0.8)
    panel.invert_yaxis()  # in the order of the table
    panel.set_xlabel(label)
