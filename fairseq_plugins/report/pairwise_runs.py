"""Two rows trained with the same seeds: their difference, in words and as pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.tables import columns
from fairseq_plugins.papers.tables import Column
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.differences import interval, probability
from fairseq_plugins.report.render import cell_text
from fairseq_plugins.statistics.comparisons import gather, mean, rows_of
from fairseq_plugins.statistics.inference import Estimate, Seeds, difference, pooled_spread

WIDTH = 41  # of the picture in the terminal, in characters
Curves = Mapping[str, Sequence[tuple[int, float]]]  # by row: updates, training perplexity


@dataclass(frozen=True)
class PairwiseRuns:
    """Two rows, their values by seed, and the difference over the seeds that both have.

    Attributes:
        first, second: names of rows.
        column: the metric that is compared.
        values: by row and seed.
        estimate: the second row minus the first.
    """

    first: str
    second: str
    column: Column
    values: Mapping[str, Seeds]
    estimate: Estimate

    @property
    def seeds(self) -> list[int]:
        """The seeds that both rows have."""
        return sorted(self.values[self.first].keys() & self.values[self.second].keys())

    @property
    def differences(self) -> dict[int, float]:
        """Return the second row minus the first, by seed."""
        own, other = self.values[self.second], self.values[self.first]
        return {seed: own[seed] - other[seed] for seed in self.seeds}

    @property
    def verdict(self) -> str:
        """Say which row is better, in a sentence."""
        if self.estimate.p is None:
            return "One pair of runs says nothing of chance: more minutes give an interval."
        if not self.estimate.is_apart:
            return (
                f"{self.first} and {self.second} cannot be told apart by these runs "
                f"(p = {probability(self.estimate.p)})."
            )
        is_second = (self.estimate.effect > 0) == self.column.higher_is_better
        better, worse = (self.second, self.first) if is_second else (self.first, self.second)
        return f"{better} is better than {worse} (p {_compared(self.estimate.p)})."

    def text(self) -> str:
        """Write the numbers, the difference, the verdict, and a picture in text."""
        digits, label = self.column.digits, self.column.label
        table = [["", label]]
        for row in (self.first, self.second):
            kept = {seed: self.values[row][seed] for seed in self.seeds}
            table.append([row, cell_text(kept, digits)])
        table.append([f"{self.second} - {self.first}", f"{self.estimate.effect:+.{digits}f}"])
        table.append(["95 % interval", interval(self.estimate, digits)])
        better = "higher" if self.column.higher_is_better else "lower"
        head = f"{label}, {better} is better; {len(self.seeds)} paired seeds"
        return "\n".join([head, "", columns(table, left=1), "", *self.picture(), "", self.verdict])

    def picture(self) -> list[str]:
        """Draw each seed's difference and the mean with its interval as lines of text."""
        low = self.estimate.effect if self.estimate.low is None else self.estimate.low
        high = self.estimate.effect if self.estimate.high is None else self.estimate.high
        shown = [*self.differences.values(), low, high, 0.0]
        least, most = min(shown), max(shown)
        scale = (WIDTH - 1) / ((most - least) or 1.0)

        def at(value: float) -> int:
            return round((value - least) * scale)

        lines = []
        for seed, value in self.differences.items():
            marks = {at(0.0): "|", at(value): "o"}
            lines.append(f"  {f'seed {seed}':<8} {_line(marks)}  {value:+.{self.column.digits}f}")
        spread = dict.fromkeys(range(at(low), at(high) + 1), "-")
        marks = {**spread, at(low): "[", at(high): "]", at(0.0): "|", at(self.estimate.effect): "O"}
        own = f"{self.estimate.effect:+.{self.column.digits}f}"
        return [*lines, f"  {'mean':<8} {_line(marks)}  {own}"]


def _compared(p: float) -> str:
    text = probability(p)
    return text if text.startswith("<") else f"= {text}"


def _line(marks: Mapping[int, str]) -> str:
    return "".join(marks.get(place, " ") for place in range(WIDTH))


def compare(
    first: str, second: str, attention: str, column: Column, results: Sequence[Result]
) -> PairwiseRuns:
    """Compare two rows of a study at the seeds that both have.

    Raises:
        ValueError: they have no seed in common.
    """
    rows = rows_of(gather(results, [column]), attention, column.metric)
    values = {row: rows.get(row, {}) for row in (first, second)}
    if not values[first].keys() & values[second].keys():
        raise ValueError(f"{first} and {second} have no finished run of one seed in common.")
    common = {
        row: {s: v for s, v in own.items() if s in values[first] and s in values[second]}
        for row, own in values.items()
    }
    own, other = common[first], common[second]
    estimate = difference([other], [own], pooled_spread([own, other]))
    return PairwiseRuns(first, second, column, values, estimate)


def draw(pairwise: PairwiseRuns, curves: Curves, stem: Path) -> list[Path]:
    """Write the picture as PNG and SVG, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure

        from fairseq_plugins.common.pictures import save_picture
    except ImportError:
        return []
    picture = Figure(figsize=(10, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    for row in (pairwise.first, pairwise.second):
        if curves.get(row):
            left.plot(*zip(*curves[row], strict=True), label=row, linewidth=1.5)
    left.set(xlabel="updates", ylabel="training perplexity, mean over seeds", yscale="log")
    left.legend()
    _draw_differences(pairwise, right)
    for panel in (left, right):
        panel.grid(alpha=0.3)
    save_picture(picture, stem)
    return [stem.with_suffix(".png"), stem.with_suffix(".svg")]


def _draw_differences(pairwise: PairwiseRuns, panel: Any) -> None:
    seeds, values = zip(*pairwise.differences.items(), strict=True)
    panel.plot(values, [f"seed {seed}" for seed in seeds], "o", color="tab:grey")
    low, high = pairwise.estimate.low, pairwise.estimate.high
    if low is not None and high is not None:
        reach = [[pairwise.estimate.effect - low], [high - pairwise.estimate.effect]]
        panel.errorbar([pairwise.estimate.effect], ["mean"], xerr=reach, fmt="o", capsize=5)
    panel.axvline(0.0, color="black", linewidth=0.8)
    panel.set_xlabel(
        f"{pairwise.column.label}: {pairwise.second} less {pairwise.first}, 95 % interval"
    )


def mean_curves(
    runs: Mapping[str, Sequence[Mapping[int, float]]],
) -> dict[str, list[tuple[int, float]]]:
    """Average perplexities over runs, at the updates that all runs of a row printed.

    Args:
        runs: by row, for each run the base-2 loss by updates.
    """
    return {
        row: [
            (step, 2 ** mean(run[step] for run in own))
            for step in sorted(set.intersection(*(set(run) for run in own)))
        ]
        for row, own in runs.items()
        if own
    }
