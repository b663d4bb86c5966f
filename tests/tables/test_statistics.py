"""What is said of differences is right as often as it is said to be."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fairseq_plugins.papers import TABLES
from fairseq_plugins.statistics.inference import (
    Estimate,
    Spread,
    above,
    correct_all,
    correlation,
    difference,
    enough_seeds,
    holm,
    pooled_spread,
    widen_by_holm,
)
from fairseq_plugins.statistics.judged import JudgedTable

VALUES = st.dictionaries(st.integers(1, 6), st.floats(-1e3, 1e3), min_size=1)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def simulated(random, means, noise=1.0, seeds=(1, 2, 3, 4, 5), shared=5.0):
    """Rows whose seeds move all of them together, and each a little by itself."""
    common = {seed: random.normal(0, shared) for seed in seeds}
    return [{s: m + common[s] + random.normal(0, noise) for s in seeds} for m in means]


def test_the_paired_interval_covers_the_true_difference_as_often_as_it_says():
    random = np.random.default_rng(1)
    trials, covered, widths = 2000, 0, []
    for _ in range(trials):
        first, second = simulated(random, (3.0, 1.0))
        found = difference([first], [second])
        covered += found.low <= 2.0 <= found.high
        widths.append(found.high - found.low)
    # Three standard deviations of a share of 0.95 in as many trials.
    assert covered / trials == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / trials))
    assert np.median(widths) < 5  # what the seeds share, of ten times the variance, is not in it


def test_the_interval_of_single_seeds_covers_the_true_difference():
    random = np.random.default_rng(2)
    trials, covered = 2000, 0
    for _ in range(trials):
        rows = simulated(random, (0.0, 0.0, 0.0), seeds=(1, 2, 3), shared=0.0)
        (one,), (other,) = (simulated(random, (m,), seeds=(9,), shared=0.0) for m in (3.0, 1.0))
        found = difference([one], [other], pooled_spread([*rows, one, other]))
        covered += found.low <= 2.0 <= found.high
    assert covered / trials == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / trials))


def test_rows_that_are_the_same_are_seldom_told_apart_however_many_there_are():
    """Holm's correction: of all tables of equal rows at most one in twenty has any difference."""
    random = np.random.default_rng(3)
    trials, wrong = 400, 0
    for _ in range(trials):
        base, *rows = simulated(random, [0.0] * 8)
        found = correct_all({i: difference([row], [base]) for i, row in enumerate(rows)})
        wrong += any(one.is_significant for one in found.values())
    assert wrong / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)


def test_enough_seeds_are_the_fewest_that_decide_where_nothing_else_changes():
    def over(seeds: int, effect: float = 0.4) -> Estimate:
        """Differences with this mean and a deviation of 1."""
        size = np.sqrt((seeds - 1) / seeds)
        rope = {seed: 60 + effect + (size if seed % 2 else -size) for seed in range(seeds)}
        return difference([rope], [dict.fromkeys(rope, 60.0)])

    def enough(one: Estimate, value: float = 0.0) -> int | None:
        return enough_seeds([one], lambda more: not more[0].includes(value))

    assert enough(over(4)) in (26, 27)
    assert not over(24).is_significant and over(28).is_significant
    assert enough(over(4, -0.4)) == enough(over(4)) == enough(over(4, 0.1), 0.5)
    assert enough(over(4, 0.01)) is None, "more than are worth saying"
    assert enough(over(28)) is None, "decided"
    assert enough(Estimate(0.4, -1.0, 1.8, 0.4)) is None, "not over seeds"


@given(VALUES, VALUES)
def test_a_difference_is_antisymmetric(first, second):
    spread = Spread(1.5, 4)
    one = difference([first], [second], spread)
    other = difference([second], [first], spread).signed(-1)
    assert one.effect == pytest.approx(other.effect)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-9)
    assert one.p == pytest.approx(other.p)
    assert one.low <= one.effect <= one.high
    assert (one.p < 0.05) == (one.low > 0 or one.high < 0) or one.p == pytest.approx(0.05)


def test_the_resolution_is_where_single_seeds_begin_to_be_told_apart():
    spread = Spread(0.8, 6)
    edge = spread.resolution()
    assert edge == pytest.approx(2.447 * 0.8 * 2**0.5, rel=1e-3)  # Student's t of 6 degrees
    assert not difference([{1: 10.0}], [{1: 10.0 + 0.999 * edge}], spread).is_significant
    assert difference([{1: 10.0}], [{1: 10.0 + 1.001 * edge}], spread).is_significant


def test_the_spread_is_pooled_within_rows():
    """A distance between rows is none between seeds, and single seeds say nothing."""
    spread = pooled_spread([{1: 0.0, 2: 2.0}, {1: 100.0, 2: 104.0, 3: 102.0}, {1: 7.0}])
    assert spread.freedom == 3
    assert spread.deviation == pytest.approx(((2.0 + 8.0) / 3) ** 0.5)
    assert pooled_spread([{1: 3.0}, {1: 5.0}]) is None
    assert pooled_spread([{1: 3.0, 2: 3.0}, {1: 5.0}]) is None
    same = dict.fromkeys(range(3), 50.706)
    assert np.var(list(same.values())) > 0, "a mean of these is rounded"
    assert pooled_spread([same, {1: 5.0}]) is None


def test_groups_of_rows_are_compared_by_their_means():
    first = [{1: 1.0, 2: 2.5, 4: 3.0}, {1: 3.0, 2: 4.0, 4: 5.0}]
    found = difference(first, [{1: 0.0, 2: 0.5, 4: 0.0}])
    assert (found.effect, found.seeds) == (pytest.approx((2.0 + 2.75 + 4.0) / 3), 3)
    spread = Spread(1.0, 10)
    two, one = difference(first, [{3: 0.0}], spread), difference(first[:1], [{3: 0.0}], spread)
    # A seed less one, and the mean of two rows of three seeds less one.
    errors = [np.sqrt(1 / 3 + 1), np.sqrt(2 / 3 / 4 + 1)]
    assert (two.high - two.low) / (one.high - one.low) == pytest.approx(errors[1] / errors[0])
    with pytest.raises(ValueError, match="has none"):
        difference([], first)


def test_fewer_than_three_common_seeds_are_compared_by_the_spread():
    """Two differences that are alike by chance say nothing; other seeds are no match for one."""
    spread = Spread(1.0, 10)
    two = difference([{1: 5.0, 2: 6.0}], [{1: 4.9, 2: 5.9001}], spread)
    assert (two.effect, two.seeds) == (pytest.approx(0.1, abs=1e-4), 0)
    assert not two.is_significant
    same = {1: 5.0}
    copied = difference([same], [{**same, 2: 90.0, 3: 91.0}], Spread(1.0, 10))
    assert copied.effect == 0.0 and not copied.is_significant
    assert copied.high == pytest.approx(spread.resolution())
    apart = difference([same], [{2: 90.0, 3: 91.0}], spread)
    assert apart.effect == -85.5, "without a common seed all count"
    assert difference([{1: 5.0, 2: 6.0}], [{1: 4.9, 2: 5.9}]).p is None


def test_above_a_number_without_seeds():
    assert above({1: 10.0, 2: 10.2, 3: 9.9}, 5.0).is_significant
    assert not above({1: 4.0, 2: 9.0, 3: 3.0}, 5.0).is_significant
    assert above({1: 7.0, 2: 7.0001}, 5.0).p is None, "two say nothing of their spread"
    single = above({1: 7.0}, 5.0)
    assert (single.effect, single.p) == (2.0, None)
    assert above({1: 7.0}, 5.0, Spread(0.1, 3)).is_significant


def test_a_correlation_has_an_interval_from_four_pairs_on():
    first, second = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 5.0]
    found, of_three = correlation(first, second), correlation(first[:3], second[:3])
    assert found.effect == pytest.approx(np.corrcoef(first, second)[0, 1])
    # Fisher's transformation has the standard error 1 / sqrt(4 - 3).
    bounds = np.arctanh(found.effect) + np.array([-1.959964, 1.959964])
    assert np.arctanh([found.low, found.high]) == pytest.approx(bounds, abs=1e-5)
    assert (of_three.effect, of_three.low, of_three.p) == (pytest.approx(0.5), None, None)
    assert correlation(first, [7.0] * 4) is None


@given(P_VALUES)
def test_holm_is_monotone_and_never_below_what_it_corrects(p_values):
    adjusted = holm(p_values)
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.asarray(adjusted)[order]) >= 0).all()
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    assert min(adjusted) == pytest.approx(min(1.0, min(p_values) * len(p_values)))


def test_holm_as_worked_out_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@pytest.mark.parametrize("trial", range(40))
def test_intervals_at_holms_levels_exclude_zero_exactly_where_holm_finds_a_difference(trial):
    random = np.random.default_rng(trial)
    rows = simulated(random, (0.0, 0.0, 1.0, 2.0, 4.0), noise=0.7)
    pairs = itertools.combinations(range(len(rows)), 2)
    single = correct_all({(a, b): difference([rows[b]], [rows[a]]) for a, b in pairs})
    wide = widen_by_holm(single)
    assert {key: one.low <= 0 <= one.high for key, one in wide.items()} == {
        key: not one.is_significant for key, one in single.items()
    }
    assert all(wide[key].low <= one.low < one.high <= wide[key].high for key, one in single.items())


def test_the_least_p_has_bonferronis_interval_and_one_alone_keeps_its_own():
    rows = simulated(np.random.default_rng(0), (0.0, 5.0, 5.1))
    single = {b: difference([rows[b]], [rows[0]]) for b in (1, 2)}
    least = min(single, key=lambda key: single[key].p)
    differences = [rows[least][s] - rows[0][s] for s in rows[0]]
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    margin = stats.t.ppf(1 - 0.05 / 2 / 2, len(differences) - 1)
    assert widen_by_holm(single)[least].high == pytest.approx(np.mean(differences) + margin * error)
    assert widen_by_holm({1: single[1], 2: Estimate(1.0)})[2] == Estimate(1.0)
    assert widen_by_holm({1: single[1]})[1].low == pytest.approx(single[1].low)


def test_what_has_no_p_value_is_not_among_those_read_together():
    sure = difference([{1: 0.0, 2: 0.1}], [{1: 9.0, 2: 9.2}])
    found = correct_all({"a": sure, "b": difference([{1: 1.0}], [{1: 2.0}])})
    assert found["a"].adjusted == pytest.approx(sure.p)
    assert (found["b"].adjusted, found["b"].is_significant) == (None, False)


def test_every_pair_has_the_verdict_of_the_page():
    """One p for two rows, wherever they are compared."""
    table, attention = TABLES["table2"], "linear"
    metric, sign = table.ranked_by.metric, -1 if table.ranked_by.higher_is_better else 1
    rng = random.Random(1)
    rows = ("base", "rope", "spe", "lrpe_type1", "lrpe_type2", "none", "alibi")
    cells = {
        (row, attention): {metric: {seed: 40 + i + rng.random() for seed in range(4)}}
        for i, row in enumerate(rows)
    }
    judged = JudgedTable(table, cells).pairs(attention)
    assert set(judged) == set(itertools.combinations(sorted(rows), 2))
    for row, one in JudgedTable(table, cells).against(attention, metric).items():
        pair = (row, table.reference)
        ours = judged.get(pair) or judged[pair[::-1]].signed(-1)
        assert ours == one
    for pair in JudgedTable(table, cells).agreement(attention).pairs:
        names = (pair.worse, pair.better)
        ours = judged.get(names) or judged[names[::-1]].signed(-1)
        assert (ours.signed(sign).effect, ours.adjusted) == (pair.gap.effect, pair.gap.adjusted)
        assert ours.is_significant is pair.gap.is_significant
