"""Views of claims: the paper's statement, the verdict, its numbers and commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fairseq_plugins.common.tables import DASH
from fairseq_plugins.papers import CLAIMS, TABLES
from fairseq_plugins.papers.claims import Claim, Comparison, Computed, Correlation, Speed
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.report.claims_page import effect_text, interval_text, printed_text, remarks
from fairseq_plugins.report.differences import p_is
from fairseq_plugins.site.runs import table_command, typed
from fairseq_plugins.site.speed import timing_command
from fairseq_plugins.site.tables import cell_page
from fairseq_plugins.statistics.claims import Bar, bar_of, best_verdicts
from fairseq_plugins.statistics.comparisons import rows_of
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.table_results import RERUN, Evidence
from fairseq_plugins.statistics.verdicts import Verdict, Word, begins_at

SEVERAL = (1, 2, 3)  # seeds of the command where a number has no interval yet


@dataclass(frozen=True)
class Cell:
    """A number by which a claim is judged."""

    table: str
    label: str
    where: str  # table and attention
    metric: str
    values: Mapping[int, float]  # by seed
    page: str  # of its runs; "" without runs
    digits: int = 2

    @property
    def mean(self) -> str:
        return f"{fmean(self.values.values()):.{self.digits}f}" if self.values else DASH


@dataclass(frozen=True)
class Judged:
    """A claim at a scale; `command` makes the numbers by which it is judged."""

    scale: str
    verdict: Verdict
    effect: str
    interval: str
    p: str
    sentence: str
    command: str
    numbers: Sequence[Cell]
    bar: Bar | None
    tables: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdict at each scale; `best` is that of its best scale."""

    claim: Claim
    page: str
    printed: str
    judged: Sequence[Judged]
    best: Judged
    attention: str

    @property
    def shown(self) -> Sequence[Judged]:
        """The verdict of the best scale, and those of runs that the user has repeated."""
        own = [one for one in self.judged if one.scale.startswith(RERUN) and one is not self.best]
        return [self.best, *own]


def claim_views(evidence: Evidence) -> list[ClaimView]:
    """Return all claims in the papers' order."""
    best = {name: scale for name, (scale, _) in best_verdicts(evidence.verdicts).items()}
    return [_view(evidence, claim, best.get(claim.name)) for claim in CLAIMS]


def _view(evidence: Evidence, claim: Claim, best_scale: str | None) -> ClaimView:
    scales = [scale for scale, found in evidence.verdicts.items() if claim.name in found]
    judged = [
        _judged(evidence, claim, scale, evidence.verdicts[scale][claim.name]) for scale in scales
    ] or [_judged(evidence, claim, "mini", Verdict(Word.NOT_RUN))]
    best = next((one for one in judged if one.scale == best_scale), judged[0])
    attention = getattr(claim.evidence, "attention", "")
    page = f"claim-{claim.name}.html"
    return ClaimView(claim, page, printed_text(claim), judged, best, attention)


def _judged(evidence: Evidence, claim: Claim, scale: str, verdict: Verdict) -> Judged:
    estimate = verdict.estimate
    names = dict.fromkeys(t for t, *_ in claim.evidence.numbers if t in TABLES)
    pages = [
        (TABLES[name].source, one.page) for name in names if (one := evidence.find(name, scale))
    ]
    numbers = [_cell(evidence, scale, *number) for number in claim.evidence.numbers]
    return Judged(
        scale=scale,
        verdict=verdict,
        effect=effect_text(estimate, verdict) if estimate else "",
        interval=interval_text(estimate, verdict) if estimate and verdict.has_interval else "",
        p=p_text(claim, estimate) if estimate and estimate.p is not None else "",
        sentence=_sentence(claim, verdict),
        command=_command(claim, scale, numbers),
        numbers=numbers,
        bar=bar_of(claim, verdict),
        tables=pages,
    )


def p_text(claim: Claim, estimate: Estimate) -> str:
    """Format p, of the threshold at which a claim begins to hold."""
    value = "the threshold" if begins_at(claim.evidence) else "no effect"
    return f"{p_is(estimate.p)} for {value}"


def _sentence(claim: Claim, verdict: Verdict) -> str:
    estimate = verdict.estimate
    if verdict.found:
        return f"Computed: {verdict.found}."
    if estimate is None:
        why = verdict.missing or "no results yet"
        return f"{verdict.word.capitalize()}: {why.removesuffix('.')}."
    if estimate.low is None:
        why = verdict.missing or "no row has several seeds, so it cannot be tested"
        return f"The effect is {effect_text(estimate, verdict)}, but {why}."
    shared = " that both sides share" if isinstance(claim.evidence, Comparison) else ""
    over = (
        f"over {estimate.seeds} seeds{shared}"
        if estimate.seeds
        else "by the deviation between seeds, pooled over the rows of the table"
    )
    if isinstance(claim.evidence, Correlation):
        over = "over the rows"
    if isinstance(claim.evidence, Speed):
        over = "over the types"
    where = {
        Word.CONFIRMED: "all of it agrees with the claim",
        Word.CONTRADICTED: "all of it contradicts the claim",
        Word.UNDECIDED: "it is not significant"
        if estimate.is_tie_by_correction
        else "it includes the threshold, so the effect may be due to chance",
    }[verdict.word]
    sure = interval_text(estimate, verdict)
    effect = (
        f"The effect is {effect_text(estimate, verdict)}, with a 95 % interval from {sure} "
        f"{over}: {where}"
    )
    missing = [f"without {verdict.missing}"] if verdict.missing else []
    return "; ".join([effect, *remarks(claim, verdict), *missing]) + "."


def _command(claim: Claim, scale: str, numbers: Sequence[Cell]) -> str:
    """Return the commands that make the numbers, with several seeds if needed."""
    if isinstance(claim.evidence, Computed):
        return "fairseq-pe table claims"
    if isinstance(claim.evidence, Speed):
        return timing_command(claim.evidence.rows, claim.evidence.attention)
    _, _, attentions, rows = (dict.fromkeys(w) for w in zip(*claim.evidence.numbers, strict=True))
    seeds: dict[str, set[int]] = {cell.table: set() for cell in numbers}
    for cell in numbers:
        seeds[cell.table].update(cell.values)
    least = 0 if isinstance(claim.evidence, Correlation) else 2
    commands = (
        table_command(
            table, scale, [*rows], [*attentions], sorted(own) if len(own) >= least else SEVERAL
        )
        for table, own in seeds.items()
    )
    return "\n".join(map(typed, commands))


def _cell(
    evidence: Evidence, scale: str, table: str, metric: str, attention: str, row: str
) -> Cell:
    numbers = evidence.numbers.get(scale)
    values = (
        rows_of(numbers.cells.get(table, {}), attention, metric).get(row, {}) if numbers else {}
    )
    known: Table | None = TABLES.get(table)
    if known is None:
        return Cell(table, row, f"Table 9, {attention}", "speed", values, "", 3)
    column = known.column(metric)
    page = cell_page(known, scale, row, attention) if values else ""
    label = known.row(row).label
    where = f"{known.source}, {attention} attention"
    return Cell(table, label, where, column.label, values, page, column.digits)
