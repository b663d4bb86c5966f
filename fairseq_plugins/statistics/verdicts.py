"""Verdicts on the papers' claims, from results or from the numbers that the paper prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import expm1, log1p
from statistics import fmean

from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.papers.claims import (
    RELATIVE_SPEED,
    TIMINGS,
    Claim,
    Comparison,
    Computed,
    Correlation,
    Evidence,
    Speed,
    Threshold,
)
from fairseq_plugins.statistics.comparisons import logarithms, rows_of, within_runs
from fairseq_plugins.statistics.correlations import LEAST_ROWS, over_rows, start_similarity
from fairseq_plugins.statistics.inference import (
    SIGNIFICANT,
    Estimate,
    above,
    against,
    correct_all,
    difference,
    enough_seeds,
    pooled_spread,
    sample_mean,
)
from fairseq_plugins.statistics.scale_results import ScaleResults

COMPUTED = "computed"  # takes the place of a scale for claims that need no model


class Word(StrEnum):
    """The words of verdicts."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"
    UNTESTED = "cannot be tested"  # at a scale that does not measure the metric


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the effect that decides it."""

    word: Word
    # Of several comparisons the one that decides; None if not run. Its p-value is of the threshold
    # at which the claim begins to hold.
    estimate: Estimate | None = None
    unit: str = ""  # of the effect: "%" for ratios, "r" for correlations, "x" for speed
    digits: int = 2
    missing: str = ""  # the rows or baselines, or why the claim cannot be tested
    enough: int | None = None  # seeds that would decide if effect and deviation stay as measured
    found: str = ""  # by a computation, for a claim that needs no model
    corrected: Estimate | None = None  # with Holm's correction, if the table's page tests it
    held: Estimate | None = None  # partial correlation, similarity to the published model constant

    @property
    def is_corrected_tie(self) -> bool:
        """Return whether the claim is decided, but a tie on the table's page."""
        decided = self.word in (Word.CONFIRMED, Word.CONTRADICTED)
        return decided and self.corrected is not None and not self.corrected.is_significant

    @property
    def has_interval(self) -> bool:
        """Return whether the effect has a confidence interval."""
        return self.estimate is not None and self.estimate.low is not None


def judge_by_scale(
    claims: Sequence[Claim], numbers: Mapping[str, ScaleResults]
) -> dict[str, dict[str, Verdict]]:
    """Judge the claims that each scale can decide; return verdicts by scale and claim's name.

    Claims about speed are decided by the timings of a device, claims of mathematics by computations
    (scale `COMPUTED`), and all others by the models of a scale. Empty without any numbers.
    """
    found = {}
    for scale, own in numbers.items():
        of_speed = TIMINGS in own.cells
        found[scale] = {
            claim.name: judge(claim, own)
            for claim in claims
            if isinstance(claim.evidence, Speed) == of_speed
            and not isinstance(claim.evidence, Computed)
            and _has_scale(claim.evidence, own.scale)
        }
    computed = [claim for claim in claims if isinstance(claim.evidence, Computed)]
    if found and computed:
        found[COMPUTED] = {claim.name: judge(claim, ScaleResults({}, {})) for claim in computed}
    return found


def judge(claim: Claim, numbers: ScaleResults) -> Verdict:
    """Judge a claim by the numbers of a scale.

    It cannot be tested there if the scale does not measure its metric, or if no row beats the best
    trivial baseline.
    """
    if reason := _untested(claim.evidence, numbers.scale):
        return Verdict(Word.UNTESTED, missing=reason)
    verdict = _measured(claim.evidence, numbers)
    if verdict.word != Word.NOT_RUN and (reason := _below_baselines(claim.evidence, numbers)):
        return Verdict(Word.UNTESTED, missing=reason)
    return verdict


def _measured(evidence: Evidence, numbers: ScaleResults) -> Verdict:
    match evidence:
        case Comparison():
            return _comparison(evidence, numbers)
        case Correlation():
            return _correlation(evidence, numbers)
        case Speed():
            return _speed(evidence, numbers)
        case Threshold():
            return _threshold(evidence, numbers)
        case Computed():
            return _computed(evidence)


def _has_scale(evidence: Evidence, scale: str) -> bool:
    """Return whether all tables of a claim can have results at a scale."""
    tables = {table for table, *_ in evidence.numbers if table in TABLES}
    return scale != PUBLISHED or all(TABLES[table].may_start_published for table in tables)


def _untested(evidence: Evidence, scale: str) -> str:
    """Return the reason why a scale does not measure a metric of a claim; empty if it does."""
    metrics = dict.fromkeys((t, m) for t, m, *_ in evidence.numbers if t in TABLES)
    reasons = (TABLES[table].untested.get(scale, {}).get(metric, "") for table, metric in metrics)
    return next(filter(None, reasons), "")


def word_of(estimate: Estimate, claimed: str, by: float = 0.0) -> Word:
    """Return the verdict by the interval: confirmed if all of it is on the claimed side of `by`."""
    if estimate.low is None or estimate.high is None:
        return Word.UNDECIDED
    mirrored = estimate.signed(1 if claimed == "above" else -1)
    assert mirrored.low is not None and mirrored.high is not None
    if mirrored.low > by:
        return Word.CONFIRMED
    return Word.CONTRADICTED if mirrored.high < by else Word.UNDECIDED


def begins_at(evidence: Evidence) -> float:
    """Return the effect at which a claim begins to hold."""
    match evidence:
        case Speed():
            return evidence.at_least
        case Comparison():
            return evidence.by if evidence.claimed == "above" else -evidence.by
        case _:
            return 0.0


def _missing(rows: Sequence[str], found: Mapping[str, object], where: str) -> str:
    absent = [row for row in rows if row not in found]
    return f"{', '.join(f'`{row}`' for row in absent)} of {where}" if absent else ""


def _comparison(evidence: Comparison, numbers: ScaleResults) -> Verdict:
    cells, metric = numbers.cells.get(evidence.table, {}), evidence.metric
    _, other_metric, other, _ = evidence.numbers[-1]
    sides = rows_of(cells, evidence.attention, metric), rows_of(cells, other, other_metric)
    if evidence.relative:
        sides = logarithms(sides[0]), logarithms(sides[1])
    if evidence.second_metric:
        sides = (within_runs(*sides),) * 2
    absent = [
        _missing(rows, found, f"{TABLES[evidence.table].source}, {attention} attention")
        for rows, found, attention in (
            (evidence.first, sides[0], evidence.attention),
            (evidence.second, sides[1], other),
        )
    ]
    missing = "; ".join(dict.fromkeys(filter(None, absent)))
    if missing:
        return Verdict(Word.NOT_RUN, missing=missing)
    first = [sides[0][row] for row in evidence.first]
    second = [sides[1][row] for row in evidence.second]
    pooled = sides[: 1 + bool(evidence.second_attention)]
    spread = pooled_spread(row for side in pooled for row in side.values())
    begins = begins_at(evidence)
    if evidence.of_every or evidence.of_most:
        moved = [{seed: value - begins for seed, value in row.items()} for row in first]
        each = [difference(moved, [row], spread) for row in second]
        exceptions = (len(second) - 1) // 2 if evidence.of_most else 0
        verdict = _of_several(evidence, each, exceptions)
        assert verdict.estimate is not None
        return replace(verdict, estimate=verdict.estimate.mapped(lambda x: x + begins))
    within = bool(evidence.second_metric)
    paired = above(first[0], 0.0, spread) if within else difference(first, second, spread)
    if evidence.relative:
        begins = log1p(begins / 100)
    found, unit = against(paired, begins), ""
    if evidence.relative:
        found, unit = found.mapped(lambda x: 100 * expm1(x)), "%"
    word = word_of(found, evidence.claimed, evidence.by)
    enough = enough_seeds([paired], lambda more: not more[0].includes(begins))
    digits = _digits(evidence.table, metric)
    corrected = None if evidence.second_attention else _corrected(evidence, numbers)
    return Verdict(word, found, unit, digits, enough=enough, corrected=corrected)


def _corrected(evidence: Comparison, numbers: ScaleResults) -> Estimate | None:
    """Return the difference of two rows in the ranking column with the correction of its page.

    None if the claim is about a difference of a given size: the page tests against no difference.
    """
    judged = numbers.table(evidence.table)
    if evidence.by or evidence.metric != judged.table.ranked_by.metric:
        return None
    if len(evidence.first) != 1 or len(evidence.second) != 1:
        return None
    return judged.pair(evidence.attention, evidence.first[0], evidence.second[0])


def _of_several(
    evidence: Comparison | Threshold, estimates: Sequence[Estimate], exceptions: int = 0
) -> Verdict:
    """Judge several comparisons together, and say how many seeds would decide."""
    verdict = _together(evidence, estimates, exceptions)

    def is_decided(more: Sequence[Estimate]) -> bool:
        return _together(evidence, more, exceptions).word != Word.UNDECIDED

    return replace(verdict, enough=enough_seeds(estimates, is_decided))


def _together(
    evidence: Comparison | Threshold, estimates: Sequence[Estimate], exceptions: int
) -> Verdict:
    """Judge several comparisons together, of which all but `exceptions` must hold.

    The claim is confirmed if enough of them hold, each at the level divided by `exceptions` + 1
    (Benjamini and Heller 2008), and contradicted if more than `exceptions` are significantly
    reversed after Holm's correction over all. The estimate is that of the comparison which decides
    so: the least certain one without the exceptions. If it is confirmed or contradicted, its
    p-value is the claim's.
    """
    sign = 1 if evidence.claimed == "above" else -1
    digits = _digits(evidence.table, evidence.metric)
    each = correct_all(dict(enumerate(estimates))).values()

    wrong = [one for one in each if one.is_significant and sign * one.effect < 0]
    if len(wrong) > exceptions:
        reversed_one = sorted(wrong, key=lambda one: one.adjusted or 0.0)[exceptions]
        estimate = replace(reversed_one, p=reversed_one.adjusted)
        return Verdict(Word.CONTRADICTED, estimate, "", digits)

    def certainty(one: Estimate) -> tuple[float, float]:
        tail = 1.0 if one.p is None else one.p / 2  # one-sided p-value
        return (tail if one.p is None or sign * one.effect >= 0 else 1 - tail), -sign * one.effect

    last = sorted(each, key=certainty)[-1 - exceptions]
    level = SIGNIFICANT / (exceptions + 1)
    unsure = [one for one in each if one.p is None or one.p >= level or sign * one.effect < 0]
    if len(unsure) <= exceptions:
        assert last.p is not None, "an estimate without p is unsure"
        estimate = replace(last, p=last.p * (exceptions + 1))
        return Verdict(Word.CONFIRMED, estimate, "", digits)
    return Verdict(Word.UNDECIDED, last, "", digits)


def _correlation(evidence: Correlation, numbers: ScaleResults) -> Verdict:
    (one, _), (other, _) = evidence.of, evidence.with_
    pair = evidence.of, evidence.with_
    found = over_rows(numbers.cells, *pair, evidence.attention, evidence.rows, numbers.scale)
    where = f"{TABLES[one].source} and {TABLES[other].source}"
    missing = _missing(evidence.rows, dict.fromkeys(found.rows), where)
    if len(found.rows) < LEAST_ROWS:
        return Verdict(Word.NOT_RUN, missing=missing)
    if found.estimate is None:
        same = f"all rows of {TABLES[other].source} have the same number"
        return Verdict(Word.UNDECIDED, missing="; ".join(filter(None, (same, missing))))
    word = word_of(found.estimate, evidence.claimed)
    corrected = numbers.correlations[evidence.of[1], evidence.with_[1]].estimate
    given = start_similarity(evidence.with_[0])
    held = over_rows(
        numbers.cells, *pair, evidence.attention, evidence.rows, numbers.scale, given=given
    ).estimate
    return Verdict(word, found.estimate, "r", 2, missing, corrected=corrected, held=held)


def _speed(evidence: Speed, numbers: ScaleResults) -> Verdict:
    found = rows_of(numbers.cells.get(TIMINGS, {}), evidence.attention, RELATIVE_SPEED)
    missing = _missing(evidence.rows, found, f"LRPE, Table 9, {evidence.attention} attention")
    if missing:
        return Verdict(Word.NOT_RUN, missing=missing)
    of_types = sample_mean([fmean(found[row].values()) for row in evidence.rows])
    speed = replace(against(of_types, evidence.at_least), seeds=0)  # over types, not seeds
    return Verdict(word_of(speed, "above", evidence.at_least), speed, "x", 3)


def _threshold(evidence: Threshold, numbers: ScaleResults) -> Verdict:
    cells = numbers.cells.get(evidence.table, {})
    found = rows_of(cells, evidence.attention, evidence.metric)
    where = f"{TABLES[evidence.table].source}, {evidence.attention} attention"
    value, missing = evidence.value, [_missing(evidence.rows, found, where)]
    if isinstance(value, str):
        known = numbers.baselines.get(evidence.table, {}).get(evidence.metric, {})
        missing += [] if value in known else [f"baseline `{value}` of {where}"]
        value = known.get(value, 0.0)
    if any(missing):
        return Verdict(Word.NOT_RUN, missing="; ".join(filter(None, missing)))
    spread = pooled_spread(found.values())
    each = [above(found[row], value, spread) for row in evidence.rows]
    return _of_several(evidence, each)


def _computed(evidence: Computed) -> Verdict:
    from fairseq_plugins.analysis.theory import CHECKS  # imports torch

    try:
        finding = CHECKS[evidence.check]()
    except ModuleNotFoundError as error:  # FLOATER's solver is optional
        return Verdict(Word.NOT_RUN, missing=str(error))
    return Verdict(Word.CONFIRMED if finding.holds else Word.CONTRADICTED, found=finding.text)


def _below_baselines(evidence: Evidence, numbers: ScaleResults) -> str:
    """State that no row beats the best trivial baseline of a claim's metric; empty if one does."""
    match evidence:
        case Threshold(value=str()):  # the claim itself is about a baseline
            return ""
        case Comparison() | Threshold():
            table, metric = evidence.table, evidence.metric
        case Correlation():
            table, metric = evidence.with_
        case _:
            return ""
    attention = evidence.attention
    why = numbers.table(table).no_row_above_baseline(attention, TABLES[table].column(metric))
    return f"{TABLES[table].source}, {attention} attention: {why}" if why else ""


def _digits(table: str, metric: str) -> int:
    return TABLES[table].column(metric).digits
