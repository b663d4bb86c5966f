"""Printed effects of the papers' claims, beside the measured ones."""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairseq_plugins.papers import SCALE_NAMES, TABLES
from fairseq_plugins.papers.bert_correlations import PRINTED
from fairseq_plugins.papers.claims import Claim, Computed, Correlation, Speed
from fairseq_plugins.statistics.comparisons import Cells, printed_cells
from fairseq_plugins.statistics.inference import correct_all, sample_mean
from fairseq_plugins.statistics.scale_results import ScaleResults
from fairseq_plugins.statistics.verdicts import Verdict, Word, begins_at, judge

# A printed effect is not drawn where it is this many times as far from the threshold as the
# interval reaches: it would leave the interval no room.
FARTHEST = 3.0

# By scale, then by the name of each claim that the scale can decide.
Verdicts = Mapping[str, Mapping[str, Verdict]]


def best_verdicts(verdicts: Verdicts) -> dict[str, tuple[str, Verdict]]:
    """Choose for each claim the scale that measures it best, and the verdict there.

    That is the largest scale with an interval; if there is none, the largest one where the claim
    cannot be tested, as where no row beats the trivial baselines; if there is none either, the
    largest one with any number.
    """
    sizes = {scale: size for size, scale in enumerate(SCALE_NAMES)}
    best: dict[str, tuple[str, Verdict]] = {}
    for scale in sorted(verdicts, key=lambda scale: sizes.get(scale, -1)):
        for name, verdict in verdicts[scale].items():
            if name not in best or _rank(verdict) >= _rank(best[name][1]):
                best[name] = scale, verdict
    return best


def _rank(verdict: Verdict) -> int:
    if verdict.word == Word.NOT_RUN:
        return 0
    if verdict.word == Word.UNTESTED:
        return 2
    return 1 if verdict.word == Word.UNDECIDED and not verdict.has_interval else 3


def count_corrected(verdicts: Iterable[Verdict]) -> tuple[Counter[Word], Counter[Word]]:
    """Count verdicts with a p-value, all and those significant after Holm's correction over all."""
    found = ((one.word, one.estimate) for one in verdicts)
    tested = [(word, one) for word, one in found if one is not None and one.p is not None]
    corrected = correct_all({i: one for i, (_, one) in enumerate(tested)})
    left = (word for i, (word, _) in enumerate(tested) if corrected[i].is_significant)
    return Counter(word for word, _ in tested), Counter(left)


def drop_not_run(verdicts: Verdicts) -> dict[str, dict[str, Verdict]]:
    """Leave out the verdict `not run` where another scale measures the claim."""
    best = best_verdicts(verdicts)
    return {
        scale: {
            name: verdict
            for name, verdict in found.items()
            if verdict.word != Word.NOT_RUN or _rank(best[name][1]) < 2
        }
        for scale, found in verdicts.items()
    }


def printed(claim: Claim) -> Verdict:
    """Judge a claim by the paper's own numbers; there is no interval, and `not run` without any."""
    if isinstance(claim.evidence, Computed):
        return Verdict(Word.NOT_RUN)
    if isinstance(claim.evidence, Speed):
        return Verdict(Word.UNDECIDED, sample_mean([claim.evidence.printed]), "x")
    if isinstance(claim.evidence, Correlation):
        (_, own), (_, performance) = claim.evidence.of, claim.evidence.with_
        return Verdict(Word.UNDECIDED, sample_mean([PRINTED[own][performance].mean]), "r")
    return judge(claim, ScaleResults(all_printed(), {}))


@functools.cache
def all_printed() -> dict[str, Cells]:
    """Return the papers' own numbers as cells, by table."""
    return {name: printed_cells(table) for name, table in TABLES.items()}


def smaller_than_printed(claim: Claim, verdict: Verdict) -> bool:
    """Test whether an undecided effect is significantly smaller than the printed one.

    Its interval then excludes the printed effect, which is farther on the claimed side.
    """
    own, paper = verdict.estimate, printed(claim).estimate
    if verdict.word != Word.UNDECIDED or own is None or paper is None:
        return False
    if own.low is None or own.high is None:
        return False
    is_above = getattr(claim.evidence, "claimed", "above") == "above"
    return own.high < paper.effect if is_above else own.low > paper.effect


@dataclass(frozen=True)
class Bar:
    """An effect with its interval, scaled to -1 to 1 for pictures of claims.

    The claim holds above 0, whatever its units and direction.
    """

    effect: float
    low: float | None  # of its 95 % interval
    high: float | None  # of its 95 % interval
    paper: float | None  # in the paper's numbers; None if it is far outside, or without any


def bar_of(claim: Claim, verdict: Verdict) -> Bar | None:
    """Scale a claim's effect and interval for a picture; None without an effect."""
    if verdict.estimate is None:
        return None
    begins = begins_at(claim.evidence)
    sign = -1 if getattr(claim.evidence, "claimed", "above") == "below" else 1
    effect = verdict.estimate.mapped(lambda value: value - begins).signed(sign)
    known = [value for value in (effect.effect, effect.low, effect.high) if value is not None]
    reach = max(map(abs, known)) or 1.0
    own = printed(claim).estimate
    paper = None if own is None else sign * (own.effect - begins)
    if paper is not None and abs(paper) > FARTHEST * reach:
        paper = None
    reach = max(reach, abs(paper or 0.0))
    scaled = effect.mapped(lambda value: value / reach)
    paper = None if paper is None else paper / reach
    return Bar(scaled.effect, scaled.low, scaled.high, paper)
