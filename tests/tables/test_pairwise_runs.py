"""A comparison of two rows: what a budget is spent on, and what is said of the difference."""

import numpy as np
import pytest

from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.report.pairwise_runs import WIDTH, compare, draw, mean_curves
from fairseq_plugins.runner.time_budget import (
    FEWEST_SEEDS,
    FEWEST_UPDATES,
    MOST_SEEDS,
    MOST_UPDATES,
    Speed,
    fits_another,
    share,
)
from fairseq_plugins.statistics.inference import difference

COLUMN = TABLE_2.ranked_by


def results(values, row):
    return [
        {"row": row, "attention": "linear", "seed": seed, "metrics": {COLUMN.metric: value}}
        for seed, value in values.items()
    ]


A = {1: 80.0, 2: 81.0, 3: 82.5}
B = {1: 78.0, 2: 79.2, 3: 80.4, 4: 70.0}


@pytest.mark.parametrize("seconds", [60, 200, 600, 3000])
@pytest.mark.parametrize("update", [0.01, 0.1, 0.4])
def test_what_is_planned_fits_into_the_time(seconds, update):
    speed = Speed(update, 6.0)
    try:
        found = share(seconds, speed, 5)
    except ValueError:
        assert FEWEST_SEEDS * speed.pair(FEWEST_UPDATES) > 0.8 * (seconds - 10)
        return
    assert found.seeds * speed.pair(found.updates) <= seconds
    assert FEWEST_SEEDS <= found.seeds <= 5
    assert FEWEST_UPDATES <= found.updates <= MOST_UPDATES
    if found.updates < MOST_UPDATES:  # and little of it is left over
        assert found.seeds * speed.pair(found.updates + 1) > 0.8 * (seconds - 10)


def test_too_little_time_is_refused_with_what_is_needed():
    with pytest.raises(ValueError, match=r"3 pairs of runs of 50 updates take \d+ here"):
        share(20.0, Speed(1.0, 5.0), 5)


def test_pairs_go_on_as_long_as_another_one_fits():
    assert fits_another(1.0, [], 5)
    assert fits_another(40.0, [20.0, 30.0], 5)
    assert not fits_another(37.0, [20.0, 30.0], 5)
    assert not fits_another(1e9, [1.0] * MOST_SEEDS, 5)
    assert fits_another(1e9, [1.0] * MOST_SEEDS, MOST_SEEDS + 1)


def test_the_difference_is_over_the_seeds_that_both_have():
    pairwise = compare("rope", "xl", "linear", COLUMN, [*results(A, "rope"), *results(B, "xl")])
    assert pairwise.seeds == [1, 2, 3]
    expected = difference([{s: B[s] for s in A}], [A])
    assert pairwise.estimate == expected and expected.effect == pytest.approx(-1.9667, abs=1e-4)
    text = pairwise.text()
    assert "xl is better than rope (p = 0.002)" in text
    assert "xl - rope" in text and "-1.97" in text and "-2.35 to -1.59" in text
    assert "4" not in [line.split()[1] for line in text.splitlines() if line.startswith("  seed")]


def test_what_chance_can_do_is_said():
    noisy = {1: 79.0, 2: 83.0, 3: 81.0}
    both = [*results(A, "rope"), *results(noisy, "xl")]
    assert "cannot be told apart" in compare("rope", "xl", "linear", COLUMN, both).verdict
    one = [*results({1: 80.0}, "rope"), *results({1: 70.0}, "xl")]
    assert "says nothing of chance" in compare("rope", "xl", "linear", COLUMN, one).verdict
    with pytest.raises(ValueError, match="no finished run of one seed in common"):
        compare(
            "rope", "xl", "linear", COLUMN, [*results({1: 1.0}, "rope"), *results({2: 1.0}, "xl")]
        )


def test_marks_in_the_picture_stand_in_the_order_of_their_numbers():
    pairwise = compare("rope", "xl", "linear", COLUMN, [*results(A, "rope"), *results(B, "xl")])
    lines = pairwise.picture()
    marks = {line.split("  ")[1].strip(): line[11 : 11 + WIDTH] for line in lines}
    places = {f"seed {seed}": marks[f"seed {seed}"].index("o") for seed in (1, 2, 3)}
    order = np.argsort(list(pairwise.differences.values()))
    assert [*np.argsort(list(places.values()))] == [*order]
    mean = marks["mean"]
    assert mean.index("[") < mean.index("O") < mean.index("]") < mean.index("|")


def test_pictures_are_written(tmp_path):
    pairwise = compare("rope", "xl", "linear", COLUMN, [*results(A, "rope"), *results(B, "xl")])
    curves = mean_curves({"rope": [{10: 3.0, 20: 2.0}, {10: 5.0, 20: 2.0, 30: 1.0}], "xl": []})
    assert curves == {"rope": [(10, 16.0), (20, 4.0)]}
    for path in draw(pairwise, curves, tmp_path / "picture"):
        assert path.stat().st_size > 1000
