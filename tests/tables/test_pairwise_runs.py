"""Comparisons of rows trained from the same seeds: differences, verdicts and pictures."""

from dataclasses import replace

import numpy as np
import pytest

from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.report.pairwise_runs import WIDTH, compare, draw
from fairseq_plugins.statistics.inference import difference, holm
from fairseq_plugins.statistics.series import average

COLUMN = TABLE_2.ranked_by


def results(values, row):
    return [
        {"row": row, "attention": "linear", "seed": seed, "metrics": {COLUMN.metric: value}}
        for seed, value in values.items()
    ]


A = {1: 80.0, 2: 81.0, 3: 82.5}
B = {1: 78.0, 2: 79.2, 3: 80.4, 4: 70.0}


def test_the_difference_is_over_the_seeds_that_both_have():
    pairwise = compare(["rope", "xl"], "linear", TABLE_2, [*results(A, "rope"), *results(B, "xl")])
    assert pairwise.seeds == [1, 2, 3]
    expected = difference([{s: B[s] for s in A}], [A])
    assert pairwise.estimates == {("rope", "xl"): replace(expected, adjusted=expected.p)}
    assert expected.effect == pytest.approx(-1.9667, abs=1e-4)
    text = pairwise.text()
    assert "xl is better than rope (p = 0.002)" in text
    assert "xl - rope" in text and "-1.97" in text and "-2.35 to -1.59" in text
    assert "4" not in [line.split()[1] for line in text.splitlines() if line.startswith("  seed")]


def test_every_two_rows_are_compared_with_one_correction():
    values = {"rope": A, "xl": B, "t5": {1: 79.0, 2: 79.8, 3: 82.0}}
    found = [one for row, own in values.items() for one in results(own, row)]
    pairwise = compare([*values], "linear", TABLE_2, found)
    assert [*pairwise.estimates] == [("rope", "xl"), ("rope", "t5"), ("xl", "t5")]
    own = [difference([values[b]], [values[a]]) for a, b in pairwise.estimates]
    assert [one.effect for one in pairwise.estimates.values()] == pytest.approx(
        [sum(values[b][s] - values[a][s] for s in A) / 3 for a, b in pairwise.estimates]
    )
    adjusted = [one.adjusted for one in pairwise.estimates.values()]
    assert adjusted == pytest.approx(holm([one.p for one in own]))
    for said in (pairwise.text(), pairwise.page("title").markdown()):
        assert "both are corrected over all 3 pairs by Holm's method" in said
    for one, single in zip(pairwise.estimates.values(), own, strict=True):
        assert one.low <= single.low and single.high <= one.high
    page = pairwise.page("title").markdown()
    assert page.count("\n| ") == 2 + 3 + 2 + 3 and page.count("\n- ") == 3


def test_what_chance_can_do_is_said():
    noisy = {1: 79.0, 2: 83.0, 3: 81.0}
    both = [*results(A, "rope"), *results(noisy, "xl")]
    assert "do not differ significantly" in compare(
        ["rope", "xl"], "linear", TABLE_2, both
    ).verdict("rope", "xl")
    one = [*results({1: 80.0}, "rope"), *results({1: 70.0}, "xl")]
    assert "have one seed, so their difference cannot be tested" in compare(
        ["rope", "xl"], "linear", TABLE_2, one
    ).verdict("rope", "xl")
    alike = [*results(dict.fromkeys(A, 50.0), "rope"), *results(dict.fromkeys(A, 51.0), "xl")]
    assert compare(["rope", "xl"], "linear", TABLE_2, alike).verdict("rope", "xl") == (
        "rope and xl do not vary over 3 seeds, so their difference cannot be tested."
    )
    with pytest.raises(ValueError, match="no seed with finished runs in common"):
        compare(
            ["rope", "xl"],
            "linear",
            TABLE_2,
            [*results({1: 1.0}, "rope"), *results({2: 1.0}, "xl")],
        )


def test_a_row_that_is_no_better_than_a_baseline_is_named():
    both = [*results(A, "rope"), *results(B, "xl")]
    for floor, named in [(79.1, "rope, xl"), (80.0, "rope"), (90.0, "")]:
        floors = {COLUMN.metric: {"uniform": 760.0, "unigram": floor}}
        said = compare(["rope", "xl"], "linear", TABLE_2, both, floors).text()
        baseline = f"the baseline *unigram* ({floor:.2f}), a model without context"
        found = f"No better than {baseline}: {named}."
        assert (found in said) if named else "No better" not in said


def test_marks_in_the_picture_stand_in_the_order_of_their_numbers():
    pairwise = compare(["rope", "xl"], "linear", TABLE_2, [*results(A, "rope"), *results(B, "xl")])
    lines = pairwise.picture()
    marks = {line.split("  ")[1].strip(): line[11 : 11 + WIDTH] for line in lines}
    places = {f"seed {seed}": marks[f"seed {seed}"].index("o") for seed in (1, 2, 3)}
    order = np.argsort(list(pairwise.differences("rope", "xl").values()))
    assert [*np.argsort(list(places.values()))] == [*order]
    mean = marks["mean"]
    assert mean.index("[") < mean.index("O") < mean.index("]") < mean.index("|")


def test_pictures_are_written(real_pictures, tmp_path):
    pairwise = compare(["rope", "xl"], "linear", TABLE_2, [*results(A, "rope"), *results(B, "xl")])
    runs = [{10: 3.0, 20: 2.0}, {10: 5.0, 20: 2.0, 30: 1.0}]
    assert average(runs) == [(10, 4.0), (20, 2.0)]
    for path in draw(pairwise, {"rope": runs, "xl": []}, tmp_path / "picture"):
        assert path.stat().st_size > 1000
