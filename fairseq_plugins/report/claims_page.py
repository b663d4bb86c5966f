"""The page of the papers' claims, judged by the results: results/claims.md and claims.json."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import write_statistics
from fairseq_plugins.common.pages import Page, Section, bullets, provenance_section
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers import CLAIMS, UNJUDGED
from fairseq_plugins.papers.claims import Claim, Unjudged
from fairseq_plugins.records.results import Say
from fairseq_plugins.report.differences import interval, probability
from fairseq_plugins.statistics.claims import (
    Verdicts,
    best_verdicts,
    printed,
    smaller_than_printed,
    without_needless,
)
from fairseq_plugins.statistics.inference import MOST_SEEDS, Estimate
from fairseq_plugins.statistics.table_results import read_numbers
from fairseq_plugins.statistics.verdicts import Verdict, Word, judge_by_scale

PAGE = "claims"
SUMMARY = "claims-summary"  # the small picture


def write_claims(root: Path, say: Say) -> dict[str, Counter[str]]:
    """Write the page, its JSON and pictures; return counts of verdicts by scale.

    say: called with a sentence on each result that is left out.
    """
    numbers = read_numbers(root, say=say)
    verdicts = without_needless(judge_by_scale(CLAIMS, numbers))
    results = root / root_folder("results")
    render_claims(CLAIMS, verdicts, UNJUDGED).write(results / f"{PAGE}.md")
    write_statistics(results / f"{PAGE}.json", as_data(CLAIMS, verdicts))
    _draw(results, verdicts)
    return {scale: Counter(v.word for v in found.values()) for scale, found in verdicts.items()}


def _draw(results: Path, verdicts: Verdicts) -> None:
    """Draw the pictures of the best verdicts, if matplotlib is installed."""
    try:
        from fairseq_plugins.report.claims_figure import draw_claims, draw_summary
    except ImportError:
        return
    if verdicts:
        best = {name: verdict for name, (_, verdict) in best_verdicts(verdicts).items()}
        claims = [claim for claim in CLAIMS if claim.name in best]
        draw_claims(claims, best, results / PAGE)
        draw_summary(claims, best, results / SUMMARY)


def as_data(claims: Sequence[Claim], verdicts: Verdicts) -> list[dict[str, Any]]:
    """Return claims and verdicts as JSON data."""
    best = best_verdicts(verdicts)
    return [
        {
            "name": claim.name,
            "paper": claim.paper,
            "place": claim.place,
            "claim": claim.text,
            "evidence": {"kind": type(claim.evidence).__name__, **asdict(claim.evidence)},
            "mismatch": claim.mismatch,
            "note": claim.note,
            "printed_effect": effect.effect if (effect := printed(claim).estimate) else None,
            "best_scale": best[claim.name][0] if claim.name in best else None,
            "verdicts": {
                scale: {
                    "verdict": (verdict := found[claim.name]).word,
                    "unit": verdict.unit,
                    **(asdict(verdict.estimate) if verdict.estimate else {}),
                    "missing": verdict.missing,
                    "found": verdict.found,
                    "enough_seeds": verdict.enough,
                    **({"at_one_nearness": asdict(verdict.held)} if verdict.held else {}),
                    "smaller_than_printed": smaller_than_printed(claim, verdict),
                }
                for scale, found in verdicts.items()
                if claim.name in found
            },
        }
        for claim in claims
    ]


def render_claims(
    claims: Sequence[Claim], verdicts: Verdicts, unjudged: Sequence[Unjudged] = ()
) -> Page:
    """Make the page."""
    best = {name: verdict for name, (_, verdict) in best_verdicts(verdicts).items()}
    by_scale = {_BEST: best, **{f"`{scale}`": found for scale, found in verdicts.items()}}
    counts = {name: Counter(_kinds(claims, found)) for name, found in by_scale.items()}
    lines = [[name, *(str(count[word]) for word in _COUNTED)] for name, count in counts.items()]
    result = [
        markdown_table(["scale", *_COUNTED], lines, left=1),
        bullets([LARGEST, *LEGEND]),
        *_PICTURE,
    ]
    sections = []
    for paper in dict.fromkeys(claim.paper for claim in claims):
        own = [claim for claim in claims if claim.paper == paper]
        notes = [
            f"{claim.text}: {text}"
            for claim in own
            if (text := " ".join(filter(None, (claim.mismatch, claim.note))))
        ]
        parts = [_table(own, verdicts), *(["**Notes**", bullets(notes)] if notes else [])]
        sections.append(Section(paper, parts))
    if unjudged:
        lines = [[one.text, f"{one.paper}, {one.place}", one.reason] for one in unjudged]
        table = markdown_table(["claim", "place", "why"], lines)
        sections.append(Section("Claims without a verdict", [table]))
    if missing := _missing(claims, verdicts):
        sections.append(Section("What is missing", missing))
    sections.append(provenance_section(bullets(_METHOD), _SITE))
    caption = f"{len(claims)} claims, each judged by the 95 % interval of its effect."
    return Page("What the papers claim, and what the results say", caption, result, sections)


_PICTURE = (
    "![How many claims hold, and each that is above its baseline with its interval](claims.png)",
    "In the picture a dot is the effect here, the bar its interval, a diamond the paper's number "
    "(left out where it is far outside). Each bar has a scale of its own; the claim begins at the "
    "dashed line and holds to the right of it.",
)
LARGEST = (
    "A claim is measured best at the largest scale with an interval and a row above its trivial "
    "baselines. `mini` trains small models from scratch. `published` fine-tunes a published model "
    "with learned positions: there comparisons with `learned` (in LRPE's Table 3, with Base) and "
    "properties of attention also measure how far the other rows have come back to it."
)
_SITE = (
    "With the numbers, seeds and commands behind each claim: `fairseq-pe report`, which makes "
    "`site/report/index.html`. This page is made by `fairseq-pe table claims` from the results and "
    "`fairseq_plugins/papers/*_claims.py`."
)
LEGEND = (
    "**confirmed**: the whole interval is on the paper's side; **contradicted**: the whole "
    "interval is on the other side.",
    "**undecided**: the interval includes the threshold, or a correction over the claim's own "
    "pairs makes a tie, or there is no interval, as with one seed; *N seeds would decide* if "
    "effect and spread stay as measured.",
    "*a tie on the table's page*: not significant after the correction there for all pairs (or "
    "correlations) that are read together, which these verdicts leave out.",
    "*smaller than the paper's*: undecided, but the interval excludes the effect that the paper "
    "prints.",
    "*at one nearness*: the correlation with the rows' nearness to the published model held "
    "constant, which the verdict leaves out; where it is near 0, nearness explains the claim's.",
    "**cannot be tested**: no row of that scale beats its trivial baseline, or the scale does not "
    "measure it; **not run**: rows are missing; `-`: not judged at that scale, or no number in the "
    "paper.",
    "An effect is the first minus the second, in the units of the table: `%` where ratios are "
    "claimed, `r` for correlations, `x` for speed.",
)
_METHOD = (
    "Intervals are over the seeds that all rows of a claim share; with fewer than three, from the "
    "spread of seeds in the rows of the table; of correlations over the rows, of speed over the "
    "types.",
    "Where a row is said to be better or worse than every other one, each pair is over its own "
    "seeds, and the least favourable is shown; one contradicts after Holm's correction over all. "
    "Of most rows, the pair is shown that makes them more than half; for those that may fail its p "
    "is corrected (Benjamini and Heller 2008).",
    "Seeds of fine-tuned models (GLUE, SQuAD) are of the way back to the published model and of "
    "fine-tuning; at `mini` of fine-tuning alone: a row's all start from one pre-trained model.",
    "Claims of mathematics are decided by a computation (`fairseq_plugins/analysis/theory.py`).",
    "Seeds that were added to decide a claim ([experiments](../docs/experiments.md)) make its "
    "interval somewhat too narrow.",
    f"No number of seeds is given above {MOST_SEEDS}, or where the interval is not over seeds.",
    "Where the place is a table alone, its numbers say it and no sentence of the paper does.",
    "Each claim is judged by itself, without a table's correction for all its pairs. Where a claim "
    "compares two rows in the column that ranks the table, or is a correlation, it says so if that "
    "page has a tie. An interval leaves 2.5 % on either side: of forty claims of no effect at all, "
    "one is expected to be confirmed.",
)


_BEST = "each where it is measured best"
_BOTH, _UNSURE = "undecided: with an interval", "undecided: without interval"
_SMALLER = "of these smaller than the paper's"
_TIES = "confirmed: ties on the table's page"
_UNDECIDED = (Word.UNDECIDED, _BOTH, _SMALLER, _UNSURE)
_DECIDED = (Word.CONFIRMED, _TIES, Word.CONTRADICTED)
_COUNTED = (*_DECIDED, *_UNDECIDED, Word.NOT_RUN, Word.UNTESTED)


def _kinds(claims: Iterable[Claim], found: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield the word of each verdict, and what more is counted of it."""
    for claim in claims:
        if (verdict := found.get(claim.name)) is None:
            continue
        yield verdict.word
        if verdict.word == Word.CONFIRMED and verdict.is_corrected_tie:
            yield _TIES
        if verdict.word == Word.UNDECIDED:
            yield _BOTH if verdict.has_interval else _UNSURE
            if smaller_than_printed(claim, verdict):
                yield _SMALLER


def _table(claims: Sequence[Claim], verdicts: Verdicts) -> str:
    scales = [
        scale
        for scale, found in verdicts.items()
        if any(c.name in found and found[c.name].word != Word.NOT_RUN for c in claims)
    ]
    lines = []
    for claim in claims:
        effect = f"{printed_text(claim)}{' (otherwise)' if claim.mismatch else ''}"
        words = [_cell(claim, verdicts[scale].get(claim.name)) for scale in scales]
        lines.append([claim.text, claim.place, effect, *words])
    return markdown_table(["claim", "place", "in the paper", *scales], lines)


def _cell(claim: Claim, verdict: Verdict | None) -> str:
    if verdict is None:
        return DASH
    if verdict.found:
        return f"**{verdict.word}**: {verdict.found}"
    if verdict.estimate is None:
        return verdict.word
    sure = interval_text(verdict.estimate, verdict)
    brackets = f" ({sure})" if sure != DASH else ", without interval"
    if verdict.enough:
        brackets += f"; {verdict.enough} seeds would decide"
    if smaller_than_printed(claim, verdict):
        brackets += "; smaller than the paper's"
    if tie := tie_text(verdict):
        brackets += f"; {tie}"
    if held := held_text(verdict):
        brackets += f"; at one nearness {held}"
    return f"**{verdict.word}** {effect_text(verdict.estimate, verdict)}{brackets}"


def _missing(claims: Sequence[Claim], verdicts: Verdicts) -> list[str]:
    parts = []
    for scale, found in verdicts.items():
        lacks: dict[str, list[str]] = {}
        for claim in claims:
            if claim.name in found and (missing := found[claim.name].missing):
                lacks.setdefault(missing, []).append(claim.name)
        if lacks:
            lines = [f"{what}: for {', '.join(names)}" for what, names in lacks.items()]
            parts += [f"At scale `{scale}`:", bullets(lines)]
    return parts


def effect_text(estimate: Estimate, verdict: Verdict) -> str:
    """Format an effect with its unit."""
    if verdict.unit == "x":
        return f"{estimate.effect:.{verdict.digits}f} x"
    unit = {"%": " %", "r": " r"}.get(verdict.unit, "")
    return f"{estimate.effect:+.{verdict.digits}f}{unit}"


def printed_text(claim: Claim) -> str:
    """Format the effect that the paper prints; a dash without one."""
    own = printed(claim)
    return DASH if own.estimate is None else effect_text(own.estimate, own)


def interval_text(estimate: Estimate, verdict: Verdict) -> str:
    """Format an effect's interval; speeds are ratios and have no sign."""
    return interval(estimate, verdict.digits, sign="" if verdict.unit == "x" else "+")


def tie_text(verdict: Verdict) -> str:
    """Say that a correction for multiple testing makes a tie; "" otherwise."""
    effect = verdict.estimate
    if verdict.word == Word.UNDECIDED and effect is not None and effect.is_tie_by_correction:
        p = probability(effect.adjusted)
        return f"a tie, corrected for all pairs of the claim (p = {p})"
    if not verdict.is_corrected_tie or verdict.corrected is None:
        return ""
    p = probability(verdict.corrected.adjusted)
    what = "correlations" if verdict.unit == "r" else "pairs"
    return f"a tie on the table's page, corrected for all its {what} (p = {p})"


def held_text(verdict: Verdict) -> str:
    """Format what is left of a correlation with nearness held constant; "" where it has none."""
    if verdict.held is None:
        return ""
    sure = interval_text(verdict.held, verdict)
    return f"{effect_text(verdict.held, verdict)} ({sure})"
