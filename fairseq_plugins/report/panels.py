"""The panels of a table's figures as data: what pages and the site draw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from fairseq_plugins.papers.extrapolation import BUCKETS
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import deviation
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import (
    Lines,
    Points,
    bucket_lines,
    length_lines,
    longest_places,
    mean_curves,
    part_lines,
)

VERSIONS = {"v1_f1": "SQuAD v1.1", "v2_f1": "SQuAD v2.0"}
MOST_LINES = 8  # of a panel
MOST = 4.0  # a line may leave its panel above this multiple of the others' highest value
FEW = 3  # most lines that may leave a panel


@dataclass(frozen=True)
class Panel:
    """A line for each row."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]  # by the row's label, the best row first
    reference: str = ""  # label of the row that the others are compared with
    log_x: bool = False
    log_y: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)  # labels of x, where it is no number
    rule: float | None = None  # x of a vertical line
    span: float = 0.0  # least difference between the ends of y, so that tiny ones do not look large

    @property
    def is_crowded(self) -> bool:
        """Return whether each line gets a small panel, being too many for one."""
        return len(self.lines) > MOST_LINES

    @property
    def top(self) -> float:
        """The upper limit of y; of a logarithmic panel a few lines far above may leave it.

        These are at most `FEW`, and at most one in five.
        """
        peaks = sorted(max(value for _, value in line) for line in self.lines.values())
        for few in range(min(FEW, len(peaks) // 5) if self.log_y else 0, 0, -1):
            if peaks[-few] > MOST * peaks[-few - 1]:
                return 1.1 * peaks[-few - 1]
        return peaks[-1]

    @cached_property
    def ends(self) -> tuple[float, float, float, float]:
        """The lowest and highest x, and the lowest and highest y."""
        points = [point for line in self.lines.values() for point in line]
        xs = [x for x, _ in points]
        return min(xs), max(xs), min(y for _, y in points), self.top

    def end_labels(self) -> list[str]:
        first, last, low, high = (
            f"{end:.3g}" if abs(end) < 1e3 else f"{end:,.0f}" for end in self.ends
        )
        return [f"{first}x", f"{last}x", low, high] if self.log_x else [first, last, low, high]

    def scaled(self, points: Points) -> list[tuple[float, float]]:
        """Scale points to a unit square, up to where their line leaves the panel."""
        first, last, low, high = self.ends
        found: list[tuple[float, float]] = []
        for x, y in points:
            u, v = _share(x, first, last, self.log_x), _share(y, low, high, self.log_y)
            if v > 1:
                if found:
                    u0, v0 = found[-1]
                    found.append((u0 + (u - u0) * (1 - v0) / (v - v0), 1.0))
                break
            found.append((u, v))
        return found

    def band(self) -> list[tuple[float, float]]:
        """Return the outline of the area between the lowest and the highest line, scaled."""
        by_x: dict[float, list[float]] = {}
        for x, y in sorted(point for line in self.lines.values() for point in line):
            by_x.setdefault(x, []).append(min(y, self.top))
        upper = [(x, max(ys)) for x, ys in by_x.items()]
        return self.scaled([*((x, min(ys)) for x, ys in by_x.items()), *reversed(upper)])


def four_digits(value: float) -> str:
    """Format a number of a small panel to four digits, zeros included."""
    return f"{value:#.4g}".rstrip(".")


def _share(value: float, low: float, high: float, log: bool) -> float:
    """Return how far a value is from the low end of a scale, 1 at the high end."""
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / ((high - low) or 1.0)


Dot = tuple[str, float, float | None]  # label, mean, and the deviation over several seeds


def rankings_of(judged: JudgedTable) -> dict[str, list[Dot]]:
    """Rank the rows under each attention that has any in the ranking column, the best first."""
    table, found = judged.table, {}
    for attention in [*table.attentions, *table.extra_attentions]:
        rows = judged.rows(attention)
        dots = [(table.row(r).label, fmean(s.values()), deviation(s)) for r, s in rows.items()]
        dots.sort(key=lambda dot: -judged.sign * dot[1])
        if dots:
            found[table.name_of(attention)] = dots
    return found


def rows_ranked(judged: JudgedTable, rankings: Mapping[str, Sequence[Dot]]) -> list[str]:
    """Return the labels of all rows of rankings in the order of the page, others last."""
    found = {label for dots in rankings.values() for label, *_ in dots}
    known = [row.label for row in judged.table.rows if row.label in found]
    return [*known, *sorted(found - {*known})]


def panels_of(table: Table, kind: str, results: Sequence[Result]) -> list[Panel]:
    """Make the panels of a figure of a kind (`papers.tables.Figure`); none for maps and dots."""
    match kind:
        case "curves":
            words: dict[str, Any] = {"x": "updates", "y": "validation perplexity", "log_y": True}
            return _by_attention(table, mean_curves(results), **words)
        case "lengths":
            return _lengths(table, results)
        case "parts":
            return _parts(table, results)
        case "buckets":
            counts = results[0]["metrics"]["sentences"]
            ticks = {
                float(i): f"{name}\n{counts[name]} sentences" for i, name in enumerate(BUCKETS)
            }
            words = {"x": "words of the source, as tokenised", "y": "BLEU", "ticks": ticks}
            return _by_attention(table, bucket_lines(results), is_higher_better=True, **words)
    return []


def _by_attention(
    table: Table, found: Lines, title: str = "", *, is_higher_better: bool = False, **words: Any
) -> list[Panel]:
    """Make a panel for each attention, the row first whose line ends farthest out and best."""
    sign = -1 if is_higher_better else 1
    panels = []
    for attention in [*table.attentions, *table.extra_attentions]:
        own = {row: line for (row, a), line in found.items() if a == attention and line}
        best_first = sorted(own, key=lambda row: (-own[row][-1][0], sign * own[row][-1][1]))
        if own:
            lines = {table.row(row).label: own[row] for row in best_first}
            reference = table.row(table.reference).label
            panels.append(
                Panel(f"{title}{attention} attention", lines=lines, reference=reference, **words)
            )
    return panels


def _lengths(table: Table, results: Sequence[Result]) -> list[Panel]:
    words: dict[str, Any] = {"y": "perplexity", "log_y": True}
    x = "length of the window, in training lengths"
    panels = _by_attention(table, length_lines(results), x=x, log_x=True, **words)
    for factor, lines in longest_places(results).values():
        x = f"place in a window of {factor}x, in training lengths"
        panels += _by_attention(table, lines, x=x, rule=1.0, **words)
    return panels


def _parts(table: Table, results: Sequence[Result]) -> list[Panel]:
    samples = [part["samples"] for part in results[0]["metrics"]["parts"]]
    words: dict[str, Any] = {
        "x": "parts of the pre-training, and the length of their samples",
        "y": "F1",
        "ticks": {float(i): f"{i}\n{length}" for i, length in enumerate(samples, 1)},
        "rule": samples.index(samples[-1]) + 0.5,  # where the longest samples begin
        "span": 1.0,  # points
    }
    return [
        panel
        for metric, version in VERSIONS.items()
        for panel in _by_attention(
            table, part_lines(results, metric), f"{version}, ", is_higher_better=True, **words
        )
    ]
