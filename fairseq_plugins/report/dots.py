"""Pictures of a table's ranking column: a dot for each row, with its deviation over seeds."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure as Picture

from fairseq_plugins.report.panels import FEW, Dot, rankings_of, rows_ranked
from fairseq_plugins.statistics.judged import JudgedTable

WIDTH = 12.0  # inches
_MARKERS = "os^Dv<>pP*X"  # of settings, in their order
_MARGIN = 0.05  # of a panel, on either side


def draw_ranking(judged: JudgedTable) -> Picture:
    """Draw a panel for each attention with a dot for each row, the best on top."""
    rankings = rankings_of(judged)
    most = max(map(len, rankings.values()))
    picture = Picture(figsize=(WIDTH, 2 + 0.2 * most), layout="constrained")
    panels = picture.subplots(1, len(rankings), squeeze=False)[0]
    for panel, (title, dots) in zip(panels, rankings.items(), strict=True):
        labels, means, spreads = zip(*dots, strict=True)
        panel.errorbar(means, range(len(means)), xerr=_bars(spreads), fmt="o", capsize=3)
        panel.set_yticks(range(len(labels)), labels, fontsize=8)
        panel.invert_yaxis()
        panel.set_title(title)
        _leave_far_ones_out(panel, dots, judged.table.ranked_by.digits)
        _label(panel, judged)
    return picture


def draw_settings(judged: JudgedTable) -> Picture:
    """Draw a line of one panel for each row, in the page's order, with a dot for each setting."""
    rankings = rankings_of(judged)
    rows = rows_ranked(judged, rankings)
    picture = Picture(figsize=(WIDTH, 1.2 + 0.5 * len(rows)), layout="constrained")
    panel = picture.subplots()
    for i, (title, dots) in enumerate(rankings.items()):
        shift = 0.8 * ((i + 0.5) / len(rankings) - 0.5)  # so that no setting hides another
        labels, means, spreads = zip(*dots, strict=True)
        places = [rows.index(label) + shift for label in labels]
        words: Any = {"fmt": _MARKERS[i % len(_MARKERS)], "markersize": 5, "capsize": 2}
        panel.errorbar(means, places, xerr=_bars(spreads), label=title, **words)
    panel.set_yticks(range(len(rows)), rows, fontsize=8)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    for i in range(1, len(rows)):
        panel.axhline(i - 0.5, color="grey", linewidth=0.4)
    _label(panel, judged)
    panel.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # hiding no dot
    return picture


OF_DOTS = {"ranking": draw_ranking, "settings": draw_settings}  # by the kind of a figure


def _bars(spreads: Sequence[float | None]) -> list[float]:
    """Return half the lengths of deviations' bars, 0 of one seed."""
    return [spread or 0.0 for spread in spreads]


def _label(panel: Any, judged: JudgedTable) -> None:
    """Name the ranking column, its better direction and the bars, and draw the grid."""
    column = judged.table.ranked_by
    better = "higher" if column.higher_is_better else "lower"
    bars = "bars: standard deviation over seeds"
    panel.set_xlabel(f"{column.label}, {better} is better\n{bars}", fontsize=9)
    panel.grid(axis="x", alpha=0.3)


def near_ones(dots: Sequence[Dot]) -> list[Dot]:
    """Return the dots without a few that are farther from all others than these are apart.

    These are at most `FEW`, and at most one in five.
    """
    found = sorted(dots, key=lambda dot: dot[1])
    means = [mean for _, mean, _ in found]
    for few in range(min(FEW, len(found) // 5), 0, -1):
        if means[-few] - means[-few - 1] > means[-few - 1] - means[0]:
            return found[:-few]
        if means[few] - means[few - 1] > means[-1] - means[few]:
            return found[few:]
    return found


def _leave_far_ones_out(panel: Any, dots: Sequence[Dot], digits: int) -> None:
    """End the panel at the near dots; of the others write the number at its side."""
    near = near_ones(dots)
    if len(near) == len(dots):
        return
    low = min(mean - (spread or 0.0) for _, mean, spread in near)
    high = max(mean + (spread or 0.0) for _, mean, spread in near)
    margin = _MARGIN * (high - low)
    panel.set_xlim(low - margin, high + margin)
    for i, dot in enumerate(dots):
        if dot not in near:
            is_above, number = dot[1] > high, f"{dot[1]:.{digits}f}"
            text, side = (f"{number} →", "right") if is_above else (f"← {number}", "left")
            place = high if is_above else low
            panel.text(place, i, text, ha=side, va="center", fontsize=8, color="C0")
