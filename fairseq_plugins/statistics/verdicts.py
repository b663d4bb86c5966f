"""Whether numbers confirm a paper's claim: results of ours, or those that the paper prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import expm1, log

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.claims import (
    Claim,
    Comparison,
    Correlation,
    Evidence,
    Floor,
    Speed,
)
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.statistics.comparisons import Cells, mean, rows_of
from fairseq_plugins.statistics.correlations import LEAST_ROWS, over_rows
from fairseq_plugins.statistics.floors import Floors, none_rises
from fairseq_plugins.statistics.inference import (
    Estimate,
    Seeds,
    above,
    difference,
    enough_seeds,
    pooled_spread,
    sample_mean,
    together,
)
from fairseq_plugins.statistics.timings import RELATIVE_SPEED, TIMINGS

CONFIRMED, CONTRADICTED, UNDECIDED, NOT_RUN = "confirmed", "contradicted", "undecided", "not run"


@dataclass(frozen=True)
class Numbers:
    """What claims are judged by: the cells of tables by name, and floors by table.

    Timings are the cells of `TIMINGS`.
    """

    cells: Mapping[str, Cells]
    floors: Mapping[str, Floors]


@dataclass(frozen=True)
class Verdict:
    """What some numbers say of a claim.

    Attributes:
        word: confirmed, contradicted, undecided, not run.
        estimate: the effect; of several comparisons the least favourable, or the one that
            contradicts. None if not run.
        unit: what the effect is in, "%" for ratios.
        digits: after the point.
        missing: for what is not run, and for what was left out.
        enough: of an undecided one over seeds, how many would decide were the effect what it seems.
        at_floor: undecided since no row of a metric is better than what needs no model.
    """

    word: str
    estimate: Estimate | None = None
    unit: str = ""
    digits: int = 2
    missing: str = ""
    enough: int | None = None
    at_floor: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether it is known how sure the effect is."""
        return self.estimate is not None and self.estimate.low is not None


def printed_cells(table: Table) -> Cells:
    """The paper's own numbers, as if each were of one seed."""
    return {
        (row.name, attention): {metric: {0: n.mean} for metric, n in numbers.items()}
        for row in table.rows
        for attention, numbers in row.paper.items()
    }


def can_say(numbers: Numbers, claim: Claim) -> bool:
    """Whether a scale is one that a claim is about: speed is of machines, all else of models."""
    return (TIMINGS in numbers.cells) == isinstance(claim.evidence, Speed)


def judge(claim: Claim, numbers: Numbers) -> Verdict:
    """The verdict of some numbers on a claim."""
    match claim.evidence:
        case Comparison() as evidence:
            return _comparison(evidence, numbers)
        case Correlation() as evidence:
            return _correlation(evidence, numbers)
        case Speed() as evidence:
            return _speed(evidence, numbers)
        case Floor() as evidence:
            return _floor(evidence, numbers)


def word_of(estimate: Estimate, claimed: str, by: float = 0.0) -> str:
    """Confirmed where the whole interval is on the claimed side of `by`."""
    if estimate.low is None or estimate.high is None:
        return UNDECIDED
    mirrored = estimate.times(1 if claimed == "above" else -1)
    assert mirrored.low is not None and mirrored.high is not None
    if mirrored.low > by:
        return CONFIRMED
    return CONTRADICTED if mirrored.high < by else UNDECIDED


def begins_at(evidence: Evidence) -> float:
    """The effect from which on a claim holds, on the side that it is claimed on."""
    match evidence:
        case Speed():
            return evidence.at_least
        case Comparison():
            return evidence.by if evidence.claimed == "above" else -evidence.by
        case _:
            return 0.0


def rules_out(verdict: Verdict, printed: Verdict, claimed: str) -> bool:
    """Whether an undecided effect is surely smaller than the paper's, which is `printed`.

    Its interval then ends, on the side that is claimed, before the effect that the paper prints.
    """
    own, paper = verdict.estimate, printed.estimate
    if verdict.word != UNDECIDED or verdict.at_floor or own is None or paper is None:
        return False
    if own.low is None or own.high is None:
        return False
    return own.high < paper.effect if claimed == "above" else own.low > paper.effect


def _missing(rows: Sequence[str], found: Mapping[str, object], where: str) -> str:
    absent = [row for row in rows if row not in found]
    return f"{', '.join(f'`{row}`' for row in absent)} of {where}" if absent else ""


def _comparison(evidence: Comparison, numbers: Numbers) -> Verdict:
    cells, metric = numbers.cells.get(evidence.table, {}), evidence.metric
    other = evidence.second_attention or evidence.attention
    other_metric = evidence.second_metric or metric
    sides = rows_of(cells, evidence.attention, metric), rows_of(cells, other, other_metric)
    absent = [
        _missing(rows, found, f"{_source(evidence.table)}, {attention} attention")
        for rows, found, attention in (
            (evidence.first, sides[0], evidence.attention),
            (evidence.second, sides[1], other),
        )
    ]
    missing = "; ".join(dict.fromkeys(filter(None, absent)))
    if missing:
        return Verdict(NOT_RUN, missing=missing)
    lost = _lost(evidence.table, metric, evidence.attention, numbers)
    if evidence.relative:
        sides = _logarithms(sides[0]), _logarithms(sides[1])
    first = [sides[0][row] for row in evidence.first]
    second = [sides[1][row] for row in evidence.second]
    is_other = bool(evidence.second_attention or evidence.second_metric)
    spread = pooled_spread([*sides[0].values(), *(sides[1].values() if is_other else ())])
    if evidence.of_every:
        each = together(dict(enumerate(difference(first, [row], spread) for row in second)))
        return _of_every(evidence, list(each.values()), lost)
    else:
        found = difference(first, second, spread)
    if evidence.relative:
        found = found.moved(lambda x: 100 * expm1(x))
    word = UNDECIDED if lost else word_of(found, evidence.claimed, evidence.by)
    unit = "%" if evidence.relative else ""
    enough = enough_seeds(found, begins_at(evidence)) if word == UNDECIDED and not lost else None
    digits = _digits(evidence.table, metric)
    return Verdict(word, found, unit, digits, lost, enough, at_floor=bool(lost))


def _logarithms(rows: Mapping[str, Seeds]) -> dict[str, Seeds]:
    return {row: {s: log(value) for s, value in seeds.items()} for row, seeds in rows.items()}


def _of_every(evidence: Comparison, each: Sequence[Estimate], lost: str) -> Verdict:
    """All must hold; one that is told apart, among all, the other way round contradicts."""
    sign = 1 if evidence.claimed == "above" else -1
    digits = _digits(evidence.table, evidence.metric)

    def least(some: Sequence[Estimate]) -> Estimate:
        return min(some, key=lambda one: sign * one.effect)

    if lost:
        return Verdict(UNDECIDED, least(each), "", digits, lost, at_floor=True)
    if wrong := [one for one in each if one.is_apart and sign * one.effect < 0]:
        return Verdict(CONTRADICTED, least(wrong), "", digits)
    if unsure := [one for one in each if word_of(one, evidence.claimed) != CONFIRMED]:
        counts = [enough_seeds(one) for one in unsure]
        known = [count for count in counts if count is not None]
        enough = max(known) if len(known) == len(counts) else None
        return Verdict(UNDECIDED, least(unsure), "", digits, enough=enough)
    return Verdict(CONFIRMED, least(each), "", digits)


def _correlation(evidence: Correlation, numbers: Numbers) -> Verdict:
    (one, _), (other, performance) = evidence.of, evidence.with_
    pair = evidence.of, evidence.with_
    found = over_rows(numbers.cells, *pair, evidence.attention, evidence.rows)
    where = f"{_source(one)} and {_source(other)}"
    missing = _missing(evidence.rows, dict.fromkeys(found.rows), where)
    if len(found.rows) < LEAST_ROWS:
        return Verdict(NOT_RUN, missing=missing)
    if found.estimate is None:
        same = f"all rows of {_source(other)} have the same number"
        return Verdict(UNDECIDED, missing="; ".join(filter(None, (same, missing))))
    lost = _lost(other, performance, evidence.attention, numbers)
    word = UNDECIDED if lost else word_of(found.estimate, evidence.claimed)
    told = "; ".join(filter(None, (lost, missing)))
    return Verdict(word, found.estimate, "r", 2, told, at_floor=bool(lost))


def _speed(evidence: Speed, numbers: Numbers) -> Verdict:
    found = rows_of(numbers.cells.get(TIMINGS, {}), evidence.attention, RELATIVE_SPEED)
    missing = _missing(evidence.rows, found, f"LRPE, Table 9, {evidence.attention} attention")
    if missing:
        return Verdict(NOT_RUN, missing=missing)
    of_types = sample_mean([mean(found[row].values()) for row in evidence.rows])
    speed = replace(of_types, p=None, seeds=0)  # it is over types, and p of a speed of 0
    return Verdict(word_of(speed, "above", evidence.at_least), speed, "x", 3)


def _floor(evidence: Floor, numbers: Numbers) -> Verdict:
    rows = rows_of(numbers.cells.get(evidence.table, {}), evidence.attention, evidence.metric)
    value = numbers.floors.get(evidence.table, {}).get(evidence.metric, {}).get(evidence.floor)
    where = f"{_source(evidence.table)}, {evidence.attention} attention"
    missing = [_missing([evidence.row], rows, where)]
    missing += [] if value is not None else [f"floor `{evidence.floor}` of {where}"]
    if any(missing) or value is None:
        return Verdict(NOT_RUN, missing="; ".join(filter(None, missing)))
    found = above(rows[evidence.row], value, pooled_spread(rows.values()))
    word = word_of(found, evidence.claimed)
    enough = enough_seeds(found) if word == UNDECIDED else None
    return Verdict(word, found, "", _digits(evidence.table, evidence.metric), enough=enough)


def _lost(table: str, metric: str, attention: str, numbers: Numbers) -> str:
    """Why a metric decides nothing: no row is better than what needs no model; else empty."""
    cells, floors = numbers.cells.get(table, {}), numbers.floors.get(table, {})
    said = none_rises(TABLES[table], cells, attention, TABLES[table].column(metric), floors)
    return f"{_source(table)}, {attention} attention: {said}" if said else ""


def _source(table: str) -> str:
    return TABLES[table].source


def _digits(table: str, metric: str) -> int:
    return TABLES[table].column(metric).digits
