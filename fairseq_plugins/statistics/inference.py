"""Tests, intervals and corrections for differences between rows, used by all pages and claims.

Runs of one seed see their data in the same order, so rows are compared at the seeds that they
share. With three or more of these, a paired t-test over seeds takes its error from the paired
differences; with fewer, the error comes from the deviation between seeds pooled over all rows of
the table, since two differences agree too often by chance.
"""

import gc
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy import special, stats

CONFIDENCE = 0.95
LEAST_SEEDS = 3  # of a test over seeds
MOST_SEEDS = 100  # the largest number of seeds that is proposed
SIGNIFICANT = 1 - CONFIDENCE  # p below which a difference is significant

Seeds = Mapping[int, float]  # the numbers of a row, by seed
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """The standard deviation between seeds of a row, and its degrees of freedom."""

    deviation: float
    freedom: int

    def resolution(self) -> float:
        """Return the smallest difference between rows of one seed with p below 5 %."""
        return float(half_width(self.freedom) * self.deviation * np.sqrt(2))


@dataclass(frozen=True)
class Estimate:
    """A difference or another effect, with its 95 % interval and its p-value."""

    effect: float
    low: float | None = None  # None, as high and p, where the deviation between seeds is unknown
    high: float | None = None
    p: float | None = None
    seeds: int = 0  # paired ones; 0 where the test uses the pooled deviation
    adjusted: float | None = None  # p after Holm's correction, where several were tested together
    freedom: int = 0  # degrees of freedom of the t-test behind interval and p

    @property
    def is_significant(self) -> bool:
        """Return whether the difference is significant, after the correction if there is one."""
        p = self.p if self.adjusted is None else self.adjusted
        return p is not None and p < SIGNIFICANT

    @property
    def is_tie_by_correction(self) -> bool:
        """Return whether the difference is significant, but not after the correction."""
        return self.p is not None and self.p < SIGNIFICANT and not self.is_significant

    def includes(self, value: float) -> bool:
        """Return whether the interval includes a value, as one of unknown width does."""
        return self.low is None or self.high is None or self.low <= value <= self.high

    def as_data(self) -> dict[str, Any]:
        """Return the estimate as JSON data of pages."""
        return {name: value for name, value in asdict(self).items() if name != "freedom"}

    def mapped(self, change: Callable[[float], float]) -> "Estimate":
        """Return the estimate in other units; `change` must be monotone."""
        low = None if self.low is None else change(self.low)
        high = None if self.high is None else change(self.high)
        return replace(self, effect=change(self.effect), low=low, high=high)

    def signed(self, sign: int) -> "Estimate":
        """Return the estimate with its sign flipped, if `sign` is -1."""
        if sign > 0:
            return self
        low = None if self.high is None else -self.high
        high = None if self.low is None else -self.low
        return replace(self, effect=-self.effect, low=low, high=high)


def pooled_spread(rows: Iterable[Seeds]) -> Spread | None:
    """Pool the standard deviation within rows over the rows with several seeds.

    None where no row has several, and where no row varies: models that predict the same for every
    input, as after a failed training, tell nothing about the deviation of others.
    """
    several = [list(row.values()) for row in rows if len(row) > 1]
    if not any(map(_varies, several)):
        return None
    freedoms = [len(values) - 1 for values in several]
    variance = np.average([np.var(values, ddof=1) for values in several], weights=freedoms)
    return Spread(float(np.sqrt(variance)), sum(freedoms))


def difference(
    first: Sequence[Seeds], second: Sequence[Seeds], spread: Spread | None = None
) -> Estimate:
    """Estimate the mean of one group of rows minus that of another; groups are mostly one row.

    Each seed that all rows have gives one difference. Three or more are tested by a paired t-test,
    fewer by `spread`. Rows without a common seed are compared over all their seeds, by `spread`.

    Raises:
        ValueError: a group without rows, or a row without seeds.
    """
    if not first or not second or not all([*first, *second]):
        raise ValueError("each group must have rows, and each row seeds, but one has none.")
    common = sorted(set(first[0]).intersection(*first, *second))
    paired = [_mean_at(first, seed) - _mean_at(second, seed) for seed in common]
    if len(paired) >= LEAST_SEEDS and _varies(paired):
        return _of_sample(paired, 0.0)
    if common:
        first, second = (
            [{seed: row[seed] for seed in common} for row in group] for group in (first, second)
        )
    effect = float(_mean(first) - _mean(second))
    groups = (first, second)
    variance = sum(sum(1 / len(row) for row in group) / len(group) ** 2 for group in groups)
    return _of_spread(effect, variance, spread)


def above(row: Seeds, value: float, spread: Spread | None = None) -> Estimate:
    """Estimate how far a row is above a fixed number, such as a trivial baseline."""
    values = list(row.values())
    if len(values) >= LEAST_SEEDS and _varies(values):
        return _of_sample(values, value)
    return _of_spread(float(np.mean(values)) - value, 1 / len(values), spread)


def against(estimate: Estimate, value: float) -> Estimate:
    """Return the estimate of a t-test with the p-value of its distance from `value`, not from 0."""
    if estimate.high is None or not estimate.freedom:
        return estimate
    error = (estimate.high - estimate.effect) / half_width(estimate.freedom)
    return replace(estimate, p=_p_value(estimate.effect - value, error, estimate.freedom))


def enough_seeds(
    estimates: Sequence[Estimate], is_decided: Callable[[Sequence[Estimate]], bool]
) -> int | None:
    """Estimate how many seeds would decide, with effects and deviations as measured.

    is_decided: whether estimates decide the question.

    Returns:
        None where the estimates decide it, none is paired over seeds, or it would need more than
        `MOST_SEEDS`.
    """
    paired = [one.seeds for one in estimates if one.seeds]
    if not paired or is_decided(estimates):
        return None
    counts = range(min(paired) + 1, MOST_SEEDS + 1)
    return next((n for n in counts if is_decided([_with_seeds(e, n) for e in estimates])), None)


def _with_seeds(estimate: Estimate, seeds: int) -> Estimate:
    """Return a paired estimate as it would be over at least so many seeds."""
    if not 0 < estimate.seeds < seeds:
        return estimate
    assert estimate.high is not None, "a paired estimate has an interval"
    error = (estimate.high - estimate.effect) / half_width(estimate.freedom)
    error *= float(np.sqrt(estimate.seeds / seeds))
    return _of_error(estimate.effect, error, seeds - 1, seeds)


def p_above_baseline(percent: float, examples: int, baseline: float) -> float:
    """Compute the p-value of an accuracy above `baseline`, by a one-sided exact binomial test.

    Both are in per cent. The baseline is taken as exact, though it may be measured on the same
    examples.
    """
    right = round(percent / 100 * examples)
    test = stats.binomtest(right, examples, baseline / 100, alternative="greater")
    return float(test.pvalue)


def sample_mean(values: Sequence[float]) -> Estimate:
    """Estimate the mean of a sample, with a one-sample t-test against 0."""
    return _of_sample(values, 0.0) if _varies(values) else Estimate(float(np.mean(values)))


def correlation(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """Compute Pearson's correlation; None if a side is constant, no interval below four pairs."""
    if not (_varies(first) and _varies(second)):
        return None
    test = stats.pearsonr(first, second)
    if len(first) < 4:  # Fisher's transformation has no error then
        return Estimate(float(test.statistic))
    interval = test.confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    return Estimate(float(test.statistic), low, high, float(test.pvalue))


def partial_correlation(
    first: Sequence[float], second: Sequence[float], given: Sequence[float]
) -> Estimate | None:
    """Compute the partial correlation of two quantities, which controls for a third.

    None where one is constant or a linear function of the third; no interval below five triples.
    """
    if not all(map(_varies, (first, second, given))):
        return None
    found = np.corrcoef([first, second, given])
    between, with_first, with_second = (float(found[i]) for i in ((0, 1), (0, 2), (1, 2)))
    left = (1 - with_first**2) * (1 - with_second**2)
    if left < 1e-9:
        return None
    effect = min(max((between - with_first * with_second) / float(np.sqrt(left)), -1.0), 1.0)
    count = len(first) - 1  # the third costs a degree of freedom
    if count < 4:
        return Estimate(effect)
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) / float(np.sqrt(count - 3))
    with np.errstate(divide="ignore"):
        low, high = np.tanh(np.arctanh(effect) + np.array([-half, half]))
        score = abs(effect) * np.sqrt((count - 2) / np.float64(1 - effect**2))
    return Estimate(effect, float(low), float(high), 2 * float(special.stdtr(count - 2, -score)))


def _varies(values: Sequence[float]) -> bool:
    """Test whether values differ by more than rounding."""
    return len(values) > 1 and bool(np.ptp(values) > 1e-9 * np.max(np.abs(values)))


def _mean(group: Sequence[Seeds]) -> float:
    return float(np.mean([np.mean(list(row.values())) for row in group]))


def _mean_at(group: Sequence[Seeds], seed: int) -> float:
    return float(np.mean([row[seed] for row in group]))


def _of_sample(values: Sequence[float], null: float) -> Estimate:
    """Estimate how far the mean of a sample is above `null`, by a one-sample t-test."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / float(np.sqrt(count))
    return _of_error(float(np.mean(values)) - null, error, count - 1, count)


def _of_spread(effect: float, variance: float, spread: Spread | None) -> Estimate:
    """Estimate an effect whose variance is a multiple, `variance`, of the pooled one."""
    if spread is None:
        return Estimate(effect)
    return _of_error(effect, spread.deviation * float(np.sqrt(variance)), spread.freedom)


def _of_error(effect: float, error: float, freedom: int, seeds: int = 0) -> Estimate:
    """Estimate an effect of known standard error, by Student's t distribution.

    It uses SciPy's special functions: SciPy's distributions and tests take milliseconds for each
    of the ten thousand differences on all pages.
    """
    half, p = half_width(freedom) * error, _p_value(effect, error, freedom)
    return Estimate(effect, effect - half, effect + half, p, seeds, freedom=freedom)


def _p_value(effect: float, error: float, freedom: int) -> float:
    score = abs(effect) / error if error else np.inf  # squares of tiny differences are zero
    return 2 * float(special.stdtr(freedom, -score))


def half_width(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return half the width of a Student's t interval of a standard error of 1."""
    return float(special.stdtrit(freedom, (1 + confidence) / 2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method (1979), in the same order."""
    if not p_values:  # which statsmodels refuses
        return []
    from statsmodels.stats.multitest import multipletests  # imports pandas, most of a second

    gc.freeze()  # statsmodels collects garbage at every call, a third of a second with torch
    try:
        _, adjusted, *_ = multipletests(p_values, method="holm")
    finally:
        gc.unfreeze()
    return [float(p) for p in adjusted]


def correct_all(estimates: Mapping[K, Estimate]) -> dict[K, Estimate]:
    """Apply Holm's correction over all estimates that have a p-value."""
    p_values = {key: one.p for key, one in estimates.items() if one.p is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {key: replace(one, adjusted=adjusted.get(key)) for key, one in estimates.items()}


def widen_by_holm(estimates: Mapping[K, Estimate]) -> dict[K, Estimate]:
    """Widen intervals of t-tests to the levels at which Holm's method tests their differences.

    Of `n` tests the smallest p is tested at 5 % / n, the next one at 5 % / (n - 1), and so on; the
    level of the first that is not significant holds for all that follow. So an interval excludes 0
    exactly where its difference is significant after the correction.
    """
    p_values = {key: one.p for key, one in estimates.items() if one.p is not None}
    widened, left = dict(estimates), len(p_values)
    for key in sorted(p_values, key=p_values.__getitem__):
        one, level = estimates[key], SIGNIFICANT / left
        assert one.high is not None, "an interval comes with each p-value"
        half = (
            (one.high - one.effect) * half_width(one.freedom, 1 - level) / half_width(one.freedom)
        )
        widened[key] = replace(one, low=one.effect - half, high=one.effect + half)
        left -= p_values[key] < level  # the level stays once a test has failed
    return widened
