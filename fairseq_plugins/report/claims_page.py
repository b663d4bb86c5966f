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
from fairseq_plugins.papers.claims import Claim, Computed, Unjudged
from fairseq_plugins.records.results import Say
from fairseq_plugins.report.differences import interval, p_is
from fairseq_plugins.statistics.claims import (
    Verdicts,
    best_verdicts,
    count_corrected,
    drop_not_run,
    printed,
    smaller_than_printed,
)
from fairseq_plugins.statistics.inference import (
    LEAST_SEEDS,
    MOST_SEEDS,
    SIGNIFICANT,
    Estimate,
    half_width,
)
from fairseq_plugins.statistics.table_results import read_numbers
from fairseq_plugins.statistics.verdicts import Verdict, Word, judge_by_scale

PAGE = "claims"
SUMMARY = "claims-summary"  # the small picture


def write_claims(root: Path, say: Say) -> dict[str, Counter[str]]:
    """Write the page, its JSON and pictures; return counts of verdicts by scale.

    say: called with a sentence on each result that is left out.
    """
    numbers = read_numbers(root, say=say)
    verdicts = drop_not_run(judge_by_scale(CLAIMS, numbers))
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
                    **(verdict.estimate.as_data() if verdict.estimate else {}),
                    "missing": verdict.missing,
                    "found": verdict.found,
                    "enough_seeds": verdict.enough,
                    **(
                        {"similarity_held_constant": verdict.held.as_data()} if verdict.held else {}
                    ),
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
    """Make the page of the claims and verdicts."""
    best = {name: verdict for name, (_, verdict) in best_verdicts(verdicts).items()}
    by_scale = {_BEST: best, **{f"`{scale}`": found for scale, found in verdicts.items()}}
    counts = {name: Counter(_counted(claims, found)) for name, found in by_scale.items()}
    lines = [[name, *(str(count[word]) for word in _COUNTED)] for name, count in counts.items()]
    result = [
        markdown_table(["scale", *_COUNTED], lines, left=1),
        bullets([by_chance(best.values()), LARGEST, *LEGEND]),
        *_PICTURE,
    ]
    sections = []
    for paper in dict.fromkeys(claim.paper for claim in claims):
        own = [claim for claim in claims if claim.paper == paper]
        parts = [_table(own, verdicts)]
        if notes := _notes(own):
            parts += ["**Notes**", bullets(notes)]
        sections.append(Section(paper, parts))
    if unjudged:
        lines = [[one.text, f"{one.paper}, {one.place}", one.reason] for one in unjudged]
        table = markdown_table(["claim", "place", "reason"], lines)
        sections.append(Section("Claims without a verdict", [table]))
    if missing := _missing(claims, verdicts):
        sections.append(Section("Limits of the verdicts", missing))
    sections.append(provenance_section(bullets(_METHOD), _SITE))
    computed = sum(isinstance(claim.evidence, Computed) for claim in claims)
    caption = (
        f"{len(claims)} claims: {len(claims) - computed} of results, judged one by one by the 95 % "
        f"interval of the effect, and {computed} of mathematics, judged by a computation."
    )
    return Page("What the papers claim, and what the results say", caption, result, sections)


_PICTURE = (
    "![Number of claims by verdict, and the interval of each claim that has one](claims.png)",
    "In the picture a dot is the effect here, the bar its interval, a diamond the effect in the "
    "paper (left out where it is far outside). Each bar has a scale of its own; to the right of "
    "the dashed line the claim holds.",
)
LARGEST = (
    "The best scale for a claim is the largest one where its effect has an interval and some row "
    "beats the trivial baselines. `mini` trains small models from scratch. `published` fine-tunes "
    "a published model with learned positions: there, comparisons with `learned` (in LRPE's Table "
    "3, with Base) and properties of attention also show how far the other rows have recovered "
    "from the change of their encoding."
)
_SITE = (
    "`fairseq-pe report` makes `site/report/index.html`, with the numbers, seeds and commands "
    "behind each claim. This page is made by `fairseq-pe table claims` from the results and "
    "`fairseq_plugins/papers/*_claims.py`."
)
LEGEND = (
    "**confirmed**: the whole interval is on the paper's side; **contradicted**: the whole "
    "interval is on the other side.",
    "**undecided**: the interval includes the threshold; or the claim is about several pairs and "
    "not significant after a correction for these; or there is no interval, as with one seed. "
    "*N seeds would decide* if effect and deviation stay as measured.",
    "*a tie on the table's page*: that page corrects for all its pairs (or correlations), and "
    "after the correction this one is not significant. It is said of claims on two rows in the "
    "column that ranks the table, and of correlations.",
    "*by the pooled deviation*: the sides share fewer than three seeds, so the interval is by the "
    "standard deviation between seeds of all rows of the table, too small for a row that varies "
    "more than others.",
    "*smaller than the paper's*: undecided, but the interval excludes the larger effect that the "
    "paper prints.",
    "*with similarity held constant*: the partial correlation that controls for the rows' "
    "similarity to the published model, which the verdict does not use; where its interval "
    "includes 0, that similarity alone may be the reason for the correlation.",
    "**cannot be tested**: no row of that scale beats its trivial baselines, or the scale does not "
    "measure the metric; **not run**: rows are missing; `-`: not judged at that scale, or no "
    "number in the paper.",
    "An effect is the claim's first side minus its second, in the units of the table; `%`: of the "
    "second side; `r`: a correlation; `x`: a speed relative to Base. *Contradicts it*: the paper's "
    "own numbers contradict the claim of its text.",
)


def by_chance(best: Iterable[Verdict]) -> str:
    """State what is due to chance among the verdicts, and what a correction for all would leave."""
    tested, left = count_corrected(best)
    text = (
        "Verdicts are not corrected for the number of claims. An interval leaves 2.5 % on either "
        "side: of forty claims without any effect, one is expected to be confirmed by chance, and "
        "one contradicted."
    )
    if not tested:
        return text
    kept = (f"{left[w]} of {tested[w]} {w}" for w in (Word.CONFIRMED, Word.CONTRADICTED))
    errors = half_width(LEAST_SEEDS - 1, 1 - SIGNIFICANT / tested.total())
    return (
        f"{text} Holm's correction over all {tested.total()} p-values would leave "
        f"{' and '.join(kept)} claims; with {LEAST_SEEDS} seeds its strictest level needs a "
        f"difference of {errors:.0f} standard errors."
    )


_METHOD = (
    "Intervals are over the seeds that all rows of a claim share; with fewer than three, they use "
    "the standard deviation between seeds, pooled over the rows of the table. Two lengths are "
    "compared within each run of a row, by how their ratio varies between seeds. Intervals of "
    "correlations are over the rows, those of speed over the eight types.",
    "A claim about every other row is judged pair by pair, each over the seeds that the pair "
    "shares. It is confirmed if all pairs are, and contradicted if one is after Holm's correction "
    "over all; the least certain of the pairs that decide is shown. A claim about most rows needs "
    "more than half of the pairs; p is then corrected for those that may fail "
    "(Benjamini and Heller 2008).",
    "For fine-tuned models (GLUE, SQuAD) a seed of `published` varies how the model is adapted to "
    "the row's encoding and how it is fine-tuned; a seed of `mini` varies the fine-tuning alone, "
    "since all seeds of a row start from one pre-trained model.",
    "The computations are those of `fairseq_plugins/analysis/theory.py`.",
    "Where seeds were added in order to decide a claim ([experiments](../docs/experiments.md)), "
    "its interval is somewhat too narrow.",
    f"No number of seeds is given above {MOST_SEEDS}, or where the interval is not over seeds.",
    "Where the place is a table alone, the claim is read from its numbers and not from a sentence.",
)


# Columns of the first table: the verdicts, some followed by parts of their count.
_BEST = "each claim at its best scale"
_TIES = "of these a tie on the table's page"
_SMALLER, _NO_INTERVAL = "of these smaller than the paper's", "of these without an interval"
_COUNTED = (
    *(Word.CONFIRMED, _TIES, Word.CONTRADICTED),
    *(Word.UNDECIDED, _SMALLER, _NO_INTERVAL, Word.NOT_RUN, Word.UNTESTED),
)


def _counted(claims: Iterable[Claim], found: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield the columns in which each verdict counts."""
    for claim in claims:
        if (verdict := found.get(claim.name)) is None:
            continue
        yield verdict.word
        if verdict.word == Word.CONFIRMED and verdict.is_corrected_tie:
            yield _TIES
        if verdict.word == Word.UNDECIDED:
            if not verdict.has_interval:
                yield _NO_INTERVAL
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
        effect = f"{printed_text(claim)}{' (contradicts it)' if claim.mismatch else ''}"
        words = [_cell(claim, verdicts[scale].get(claim.name)) for scale in scales]
        lines.append([claim.text, claim.place, effect, *words])
    return markdown_table(["claim", "place", "in the paper", *scales], lines)


def _notes(claims: Sequence[Claim]) -> list[str]:
    """Write each note once, after the claims that have it."""
    by_note: dict[str, list[str]] = {}
    for claim in claims:
        if note := " ".join(filter(None, (claim.mismatch, claim.note))):
            by_note.setdefault(note, []).append(f"*{claim.text}*")
    return [f"{', '.join(texts)}: {note}" for note, texts in by_note.items()]


def _cell(claim: Claim, verdict: Verdict | None) -> str:
    if verdict is None:
        return DASH
    if verdict.found:
        return f"**{verdict.word}**: {verdict.found}"
    if verdict.estimate is None:
        return verdict.word
    sure = interval_text(verdict.estimate, verdict)
    if verdict.has_interval and verdict.unit in ("", "%") and not verdict.estimate.seeds:
        sure += " by the pooled deviation"
    brackets = f" ({sure})" if sure != DASH else ", without an interval"
    effect = f"**{verdict.word}** {effect_text(verdict.estimate, verdict)}{brackets}"
    return "; ".join([effect, *remarks(claim, verdict)])


def remarks(claim: Claim, verdict: Verdict) -> list[str]:
    """List remarks on a verdict, in the words of the legend."""
    held = held_text(verdict)
    found = (
        f"{verdict.enough} seeds would decide" if verdict.enough else "",
        "smaller than the paper's" if smaller_than_printed(claim, verdict) else "",
        tie_text(verdict),
        f"with similarity held constant {held}" if held else "",
    )
    return [*filter(None, found)]


def _missing(claims: Sequence[Claim], verdicts: Verdicts) -> list[str]:
    parts = []
    for scale, found in verdicts.items():
        lacks: dict[str, list[str]] = {}
        for claim in claims:
            if claim.name in found and (missing := found[claim.name].missing):
                lacks.setdefault(missing, []).append(f"*{claim.text}*")
        if lacks:
            lines = [f"{', '.join(names)}: {what}" for what, names in lacks.items()]
            parts += [f"At scale `{scale}`:", bullets(lines)]
    return parts


def effect_text(estimate: Estimate, verdict: Verdict) -> str:
    """Format an effect with its unit."""
    if verdict.unit == "x":
        return f"{estimate.effect:.{verdict.digits}f} x"
    unit = {"%": " %", "r": " r"}.get(verdict.unit, "")
    return f"{estimate.effect:+z.{verdict.digits}f}{unit}"


def printed_text(claim: Claim) -> str:
    """Format the effect in the paper's numbers; a dash without any."""
    own = printed(claim)
    return DASH if own.estimate is None else effect_text(own.estimate, own)


def interval_text(estimate: Estimate, verdict: Verdict) -> str:
    """Format an effect's interval; speeds are ratios and have no sign."""
    return interval(estimate, verdict.digits, sign="" if verdict.unit == "x" else "+")


def tie_text(verdict: Verdict) -> str:
    """Describe a tie after a correction for multiple testing; "" without one."""
    effect = verdict.estimate
    if verdict.word == Word.UNDECIDED and effect is not None and effect.is_tie_by_correction:
        return f"a tie after correction for all pairs of the claim ({p_is(effect.adjusted)})"
    if not verdict.is_corrected_tie or verdict.corrected is None:
        return ""
    p = p_is(verdict.corrected.adjusted)
    what = "correlations" if verdict.unit == "r" else "pairs"
    return f"a tie on the table's page, after correction for all its {what} ({p})"


def held_text(verdict: Verdict) -> str:
    """Format the partial correlation with similarity held constant; "" without one."""
    if verdict.held is None:
        return ""
    sure = interval_text(verdict.held, verdict)
    return f"{effect_text(verdict.held, verdict)} ({sure})"
