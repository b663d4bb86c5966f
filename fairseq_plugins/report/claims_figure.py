"""Pictures of the claims: counts of verdicts, also by paper, and the interval of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.claims import Claim
from fairseq_plugins.statistics.claims import bar_of
from fairseq_plugins.statistics.verdicts import Verdict, Word

_COLOURS = {
    Word.CONFIRMED: "#1a7f4b",
    Word.CONTRADICTED: "#b3202c",
    Word.UNDECIDED: "#d9a514",
    Word.NOT_RUN: "#b8c0ca",
    Word.UNTESTED: "#dfe3e8",
}
_WIDEST = 92  # characters of a claim per line
LINE = 0.38  # inches of a claim: three lines of its text
_PAPERS: Any = {"color": "white", "markeredgecolor": "#3b4252", "zorder": 3}


def draw_claims(claims: Sequence[Claim], verdicts: Mapping[str, Verdict], stem: Path) -> None:
    """Draw a bar of all verdicts, and below it the interval of each claim that has one.

    stem: path of PNG and SVG without suffix.
    """
    counts = Counter(verdicts[claim.name].word for claim in claims)
    shown = [
        (claim, verdict)
        for word in (Word.CONFIRMED, Word.CONTRADICTED, Word.UNDECIDED)
        for claim in claims
        if (verdict := verdicts[claim.name]).word == word and verdict.has_interval
    ]
    picture = Picture(figsize=(11, 1.9 + LINE * len(shown)), layout="constrained")
    heights = [1.1, max(1.0, 0.45 * len(shown))]
    bar, lines = picture.subplots(2, 1, height_ratios=heights)
    parts = _stack(bar, 0, counts)
    bar.set_xlim(0, counts.total())
    bar.set_axis_off()
    _head(bar, parts, counts, height=0.9)
    _intervals(lines, shown)
    save_picture(picture, stem)


def draw_summary(claims: Sequence[Claim], verdicts: Mapping[str, Verdict], stem: Path) -> None:
    """Draw a small picture with a bar for each paper; arguments as for `draw_claims`."""
    papers: dict[str, Counter[Word]] = {}
    for claim in claims:
        papers.setdefault(claim.paper, Counter())[verdicts[claim.name].word] += 1
    picture = Picture(figsize=(9, 0.9 + 0.27 * len(papers)), layout="constrained")
    panel = picture.subplots()
    bars = [_stack(panel, i, counts) for i, counts in enumerate(papers.values())]
    panel.set_ylim(len(papers) - 0.5, -0.5)
    names = [f"{paper}: {counts.total()}" for paper, counts in papers.items()]
    panel.set_yticks(range(len(papers)), names, fontsize=9)
    panel.set_xticks([])
    panel.spines[:].set_visible(False)
    _head(panel, bars[0], sum(papers.values(), Counter()), height=1.02)
    save_picture(picture, stem)


def _stack(panel: Any, place: int, counts: Counter[Word]) -> list[Any]:
    """Draw a bar and return its parts, in the order of the colours."""
    left, parts = 0, []
    for word, colour in _COLOURS.items():
        parts.append(panel.barh(place, counts[word], left=left, color=colour))
        left += counts[word]
    return parts


def _head(panel: Any, bar: Sequence[Any], counts: Counter[Word], height: float) -> None:
    """Write the title, and a legend of the bar's parts below."""
    title = f"{counts.total()} claims of the papers, each judged at its best scale"
    panel.set_title(title, loc="left", pad=24)
    words = [f"{counts[word]} {word}" for word in _COLOURS if counts[word]]
    bar = [part for part, word in zip(bar, _COLOURS, strict=True) if counts[word]]
    place = {"loc": "lower left", "bbox_to_anchor": (0, height), "borderaxespad": 0.0}
    legend = {"ncols": len(words), "frameon": False, "fontsize": 8, "columnspacing": 1.0}
    panel.legend(bar, words, **legend, **place)


def _intervals(panel: Any, shown: Sequence[tuple[Claim, Verdict]]) -> None:
    """Draw each claim's interval on its own scale; right of 0 the claim holds."""
    for i, (claim, verdict) in enumerate(shown):
        bar = bar_of(claim, verdict)
        if bar is None or bar.low is None:
            continue
        if bar.paper is not None:
            panel.plot(bar.paper, i, "D", markersize=5, **_PAPERS)
        colour = _COLOURS[verdict.word]
        panel.plot([bar.low, bar.high], [i, i], color=colour, linewidth=3)
        panel.plot(bar.effect, i, "o", color=colour, markersize=7)
    panel.axvline(0, color="grey", linewidth=0.8, linestyle="--")
    panel.set_xlim(-1.08, 1.08)
    panel.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    names = [fill(claim.text, _WIDEST) for claim, _ in shown]
    panel.set_yticks(range(len(shown)), names, fontsize=7)
    sides = ["the claim does not hold", "threshold", "the claim holds"]
    panel.set_xticks([-1, 0, 1], sides, fontsize=8)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.plot([], [], "D", markersize=5, label="the paper's number", **_PAPERS)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
