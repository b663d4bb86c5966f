"""A claim is confirmed or contradicted only by what chance does not explain."""

import json
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.files import write_json
from fairseq_plugins.papers import CLAIMS, PUBLISHED, TABLES
from fairseq_plugins.papers.bert import BERT_SQUAD_TABLE
from fairseq_plugins.papers.claims import (
    Claim,
    Comparison,
    Computed,
    Correlation,
    Speed,
    Threshold,
)
from fairseq_plugins.report.claims_page import as_data, by_chance, effect_text, render_claims
from fairseq_plugins.statistics.claims import best_verdicts, count_corrected, drop_not_run, printed
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.scale_results import ScaleResults
from fairseq_plugins.statistics.series import updates_to, with_derived
from fairseq_plugins.statistics.table_results import read_numbers
from fairseq_plugins.statistics.verdicts import Verdict, Word, judge, judge_by_scale

LM = {"table": "table2", "metric": "test_ppl", "attention": "linear"}


def claim(evidence):
    return Claim("A paper", "one", "Table 1", "it is so", evidence)


def seeds_of(found):
    return {row: cell["test_ppl"] for (row, _), cell in found.cells["table2"].items()}


def numbers(floors=None, **rows):
    cells = {(row, "linear"): {"test_ppl": dict(enumerate(v))} for row, v in rows.items()}
    return ScaleResults({"table2": cells}, floors or {})


def word(evidence, found):
    return judge(claim(evidence), found).word


def below(first=("rope",), second=("base",), **more):
    return Comparison(**LM, first=first, second=second, claimed="below", **more)


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ((50.0, 51.2, 52.1), "confirmed"),
        ((70.0, 71.2, 72.1), "contradicted"),
        ((60.5, 60.4, 62.6), "undecided"),
    ],
)
def test_the_interval_decides(rope, expected):
    found = numbers(base=(60.0, 61.0, 62.0), rope=rope)
    assert word(below(), found) == expected
    mirrored = Comparison(**LM, first=("base",), second=("rope",), claimed="above")
    assert word(mirrored, found) == expected


def test_without_a_row_above_the_baseline_a_claim_cannot_be_tested():
    """Without its floor it would be confirmed."""
    values = {"base": (60.0, 61.0, 62.0), "rope": (50.0, 51.2, 52.1)}
    floors = {"table2": {"test_ppl": {"unigram": 40.0}}}
    verdict = judge(claim(below()), numbers(floors, **values))
    assert verdict.word == Word.UNTESTED and verdict.estimate is None
    page = render_claims((claim(below()),), {"mini": {"one": verdict}}).markdown()
    assert "| `mini` | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |" in page
    assert "is significantly better than that of *unigram*, 40" in page


def test_one_seed_leaves_a_claim_undecided():
    found = {"mini": {"one": judge(claim(below()), numbers(base=(60.0,), rope=(50.0,)))}}
    page = render_claims((claim(below()),), found).markdown()
    assert "| `mini` | 0 | 0 | 0 | 1 | 0 | 1 | 0 | 0 |" in page


def test_what_is_undecided_over_seeds_says_how_many_would_decide():
    verdict = judge(claim(below()), numbers(base=(60.0, 61.0, 62.0), rope=(58.5, 61.1, 60.1)))
    assert verdict.word == "undecided" and 3 < verdict.enough < 20
    found = {"mini": {"one": verdict}}
    page = render_claims((claim(below()),), found).markdown()
    assert f"; {verdict.enough} seeds would decide" in page
    assert "| `mini` | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 0 |" in page
    sure = judge(claim(below()), numbers(base=(60.0, 61.0, 62.0), rope=(50.0, 51.2, 52.1)))
    assert sure.enough is None
    # A claim in per cent has its interval on the scale of logarithms, on which seeds are counted.
    rows = numbers(base=(100.0, 102.0, 98.0), rope=(85.0, 104.0, 81.0))
    relative = judge(claim(below(by=1.0, relative=True)), rows)
    logs = numbers(**{r: [100 * np.log(v) for v in s.values()] for r, s in seeds_of(rows).items()})
    at = 100 * -np.log(0.99)
    assert relative.word == "undecided" and relative.enough is not None
    assert relative.enough == judge(claim(below(by=at)), logs).enough


@pytest.mark.parametrize(("apart", "smaller"), [(0.9, False), (0.2, True)])
def test_what_is_undecided_may_be_surely_smaller_than_the_papers(apart, smaller):
    """The paper's RoPE is 0.61 below Base, ours as good as Base, and not equally sure of it."""
    paper = printed(claim(below())).estimate.effect
    assert paper < 0
    rope = tuple(60.0 + seed + apart * sign for seed, sign in enumerate((-1, 1, 0)))
    verdict = judge(claim(below()), numbers(base=(60.0, 61.0, 62.0), rope=rope))
    assert verdict.word == "undecided"
    assert (verdict.estimate.low > paper) is smaller
    page = render_claims((claim(below()),), {"mini": {"one": verdict}}).markdown()
    assert ("); smaller than the paper's |" in page) is smaller
    assert f"| `mini` | 0 | 0 | 0 | 1 | {int(smaller)} | 0 | 0 | 0 |" in page
    (data,) = as_data((claim(below()),), {"mini": {"one": verdict}})
    assert data["verdicts"]["mini"]["smaller_than_printed"] is smaller


@pytest.mark.parametrize("relative", [False, True])
def test_p_is_of_the_threshold_that_the_claim_names(relative):
    rows = numbers(base=(60.0, 61.0, 62.0), rope=(58.0, 59.1, 60.1))
    at = partial(below, relative=relative)
    effect = judge(claim(at()), rows).estimate
    shift = -effect.effect
    assert effect.p < 0.01
    assert judge(claim(at(by=shift)), rows).estimate.p == pytest.approx(1.0)
    edge = judge(claim(at(by=-effect.high)), rows).estimate
    assert edge.p == pytest.approx(0.05) and edge.low == effect.low


def test_a_correction_over_all_claims_counts_those_that_it_leaves():
    def of(word, p):
        return Verdict(word, Estimate(1.0, 0.5, 1.5, p))

    verdicts = [
        *(of(Word.CONFIRMED, 1e-4), of(Word.CONFIRMED, 0.03), of(Word.CONTRADICTED, 1e-5)),
        *(of(Word.UNDECIDED, 0.5), Verdict(Word.CONFIRMED, found="a computation")),
    ]
    tested, left = count_corrected(verdicts)
    assert tested == {Word.CONFIRMED: 2, Word.CONTRADICTED: 1, Word.UNDECIDED: 1}
    assert left == {Word.CONFIRMED: 1, Word.CONTRADICTED: 1}
    assert "over all 4 p-values would leave 1 of 2 confirmed and 1 of 1 con" in by_chance(verdicts)
    # 8.86 standard errors leave 0.05 / 4 outside, by Student's t of two degrees of freedom.
    assert "with 3 seeds its strictest level needs a difference of 9 st" in by_chance(verdicts)
    assert "Holm" not in by_chance([Verdict(Word.NOT_RUN)])


def test_single_seeds_decide_nothing_without_a_spread():
    assert word(below(), numbers(base=(60.0,), rope=(10.0,))) == "undecided"
    spread = numbers(base=(60.0,), rope=(10.0,), xpos=(5.0, 5.2, 5.1))
    assert word(below(), spread) == "confirmed"


@pytest.mark.parametrize(("seeds", "pooled"), [(1, True), (2, True), (3, False)])
def test_the_page_says_which_intervals_are_by_the_pooled_deviation(seeds, pooled):
    found = numbers(base=(60.0, 61.0, 62.0), rope=(50.0, 51.2, 52.1)[:seeds])
    verdicts = {"mini": {"one": judge(claim(below()), found)}}
    (line,) = (
        line
        for line in render_claims((claim(below()),), verdicts).markdown().splitlines()
        if line.startswith("| it is so |")
    )
    assert line.endswith(" by the pooled deviation) |") is pooled


def test_the_size_that_is_claimed_counts():
    found = numbers(base=(100.0, 102.0, 98.0), rope=(80.1, 81.5, 78.5))  # a fifth less
    assert word(below(by=10.0, relative=True), found) == "confirmed"
    assert word(below(by=30.0, relative=True), found) == "contradicted"
    verdict = judge(claim(below(relative=True)), found)
    assert verdict.estimate.effect == pytest.approx(-20.0, abs=0.5)
    assert verdict.estimate.low < verdict.estimate.effect < verdict.estimate.high < 0
    # At most one per cent worse.
    near = numbers(base=(100.0, 102.0, 98.0), rope=(100.1, 102.2, 98.15))
    assert word(below(by=-1.0, relative=True), near) == "confirmed"
    assert word(below(), near) == "contradicted"


def test_a_claim_on_every_row_needs_them_all():
    last = Comparison(**LM, first=("spe",), second=("base", "rope"), claimed="above", of_every=True)
    base, rope = (60.0, 61.0, 62.0), (50.0, 51.1, 52.0)
    assert word(last, numbers(spe=(70.0, 71.1, 72.0), base=base, rope=rope)) == "confirmed"
    assert word(last, numbers(spe=(60.5, 60.4, 62.6), base=base, rope=rope)) == "undecided"
    assert word(last, numbers(spe=(55.0, 56.1, 57.0), base=base, rope=rope)) == "contradicted"


def test_a_claim_on_every_row_may_allow_some_distance():
    """The effect is shown as it is, and the claim begins at the distance."""
    rows = numbers(spe=(60.0, 61.0, 62.0), base=(60.5, 61.6, 62.4), rope=(50.0, 51.1, 52.0))
    near = Comparison(
        **LM, first=("spe",), second=("base", "rope"), claimed="above", by=-2.0, of_every=True
    )
    verdict = judge(claim(near), rows)
    assert verdict.word == "confirmed"
    assert verdict.estimate.effect == pytest.approx(-0.5)
    assert word(replace(near, by=0.0), rows) != "confirmed"
    assert word(replace(near, by=5.0), rows) == "contradicted"


def test_a_claim_on_every_row_says_where_only_the_correction_makes_a_tie():
    rows = {f"row{i}": (59.0 - i, 62.0, 61.9 + i) for i in range(7)}
    found = numbers(spe=(60.0, 61.0, 62.0), ahead=(60.5, 61.9, 62.6), **rows)
    every = Comparison(
        **LM, first=("spe",), second=("ahead", *rows), claimed="above", of_every=True
    )
    verdict = judge(claim(every), found)
    assert verdict.word == "undecided" and verdict.estimate.high < 0
    assert verdict.estimate.p < 0.05 < verdict.estimate.adjusted
    assert verdict.enough == 5, "seeds that decide after the correction"
    page = render_claims((claim(every),), {"mini": {"one": verdict}}).markdown()
    assert "; a tie after correction for all pairs of the claim (p = " in page


def test_of_a_claim_on_every_row_the_effect_is_shown_that_decides():
    """The least effect may be of a row whose seeds differ much, and decide nothing."""
    last = Comparison(**LM, first=("spe",), second=("base", "rope"), claimed="above", of_every=True)
    spe, noisy, sure = (60.0, 61.0, 62.0), (50.0, 90.0, 55.0), (61.0, 62.1, 63.0)
    verdict = judge(claim(last), numbers(spe=spe, base=noisy, rope=sure))
    assert verdict.word == "contradicted"
    assert verdict.estimate.high < 0
    unsure = (59.5, 60.9, 61.0)
    verdict = judge(claim(last), numbers(spe=spe, base=(50.0, 51.1, 52.0), rope=unsure))
    assert verdict.word == "undecided" and 3 < verdict.enough < 30
    assert verdict.estimate.low < 0 < verdict.estimate.high


def test_p_of_a_claim_on_several_rows_is_of_the_least_certain_pair():
    """The smallest effect may be the most certain one."""
    spe = (60.0, 61.0, 62.0)
    far, near = (50.0, 52.5, 50.5), (58.0, 59.1, 60.0)
    base = partial(Comparison, **LM, first=("spe",))
    every = base(second=("a", "b"), of_every=True, claimed="above")
    verdict = judge(claim(every), numbers(spe=spe, a=far, b=near))
    # By t = 10 / (1.5 / sqrt 3) of two degrees of freedom.
    assert verdict.word == "confirmed" and verdict.estimate.effect == pytest.approx(10.0)
    assert verdict.estimate.p == pytest.approx(0.0074, abs=1e-4)
    rows = numbers(spe=spe, a=far, b=near, c=(70.0, 71.2, 72.1))
    verdict = judge(claim(base(second=("a", "b", "c"), of_most=True, claimed="above")), rows)
    assert verdict.word == "confirmed" and verdict.estimate.p == pytest.approx(0.0148, abs=1e-4)
    reversed_one = replace(every, claimed="below")
    verdict = judge(claim(reversed_one), numbers(spe=spe, a=far, b=near))
    assert verdict.word == "contradicted" and verdict.estimate.effect < 3
    assert verdict.estimate.p < 0.002, "one reversed pair is enough"


def test_what_is_missing_is_named():
    verdict = judge(claim(below()), numbers(base=(60.0,)))
    assert (verdict.word, verdict.estimate) == ("not run", None)
    assert "`rope` of LRPE, Table 2, linear attention" in verdict.missing


def test_a_floor_is_a_number_without_seeds():
    floor = Threshold(**LM, rows=("none",), value="unigram", claimed="below")
    value = {"table2": {"test_ppl": {"unigram": 300.0}}}
    assert word(floor, numbers(value, none=(70.0, 71.0))) == "confirmed"
    assert word(floor, numbers(value, none=(400.0, 401.0))) == "contradicted"
    near = judge(claim(floor), numbers(value, none=(298.0, 301.0, 297.5)))
    assert near.word == "undecided" and near.enough > 3
    assert "baseline `unigram`" in judge(claim(floor), numbers(none=(70.0,))).missing


def test_speeds_are_judged_on_average():
    def timed(*values):
        cells = {(str(i), "linear"): {"relative_speed": {0: v}} for i, v in enumerate(values)}
        return ScaleResults({"table9": cells}, {})

    speed = Speed("linear", ("0", "1", "2"), 0.91, 0.95)
    assert word(speed, timed(0.97, 0.99, 0.96)) == "confirmed"
    assert word(speed, timed(0.5, 0.51, 0.49)) == "contradicted"
    assert word(speed, timed(0.8, 0.95, 1.0)) == "undecided"
    assert word(speed, timed(0.97, 0.99)) == "not run"
    estimate = judge(claim(speed), timed(0.97, 0.99, 0.96)).estimate
    assert 0.01 < estimate.p < 0.05 and estimate.seeds == 0, "types are no seeds"
    page = render_claims(
        (claim(speed),), {"a-cpu": {"one": judge(claim(speed), timed(0.97, 0.99, 0.96))}}
    ).markdown()
    assert "**confirmed** 0.973 x (0.935 to 1.011)" in page, "a ratio has no sign"


@pytest.mark.slow
def test_a_claim_of_no_effect_is_confirmed_once_in_forty_times():
    """Which is what the page says of claims that are judged each by itself."""
    random = np.random.default_rng(4)
    trials = 600
    drawn = (random.normal(60, 1, (2, 4)) for _ in range(trials))
    words = [word(below(), numbers(base=base, rope=rope)) for base, rope in drawn]
    share = words.count("confirmed") / trials
    assert share == pytest.approx(1 / 40, abs=3 * np.sqrt(1 / 40 * 39 / 40 / trials))
    assert "of forty claims without any effect, one is" in render_claims((), {}).markdown()


def test_correlations_need_rows():
    rows = ("a", "b", "c", "d", "e", "f")

    def both(values):
        ones = {(r, "vanilla"): {"symmetry": {0: float(i)}} for i, r in enumerate(rows)}
        others = {(r, "vanilla"): {"v1_f1": {0: v}} for r, v in zip(rows, values, strict=False)}
        return ScaleResults({"bert_table2": ones, "bert_table4": others}, {})

    falls = Correlation(
        ("bert_table2", "symmetry"), ("bert_table4", "v1_f1"), "vanilla", rows, "below"
    )
    assert word(falls, both([9.0, 8.1, 6.9, 6.0, 5.2, 3.9])) == "confirmed"
    assert word(falls, both([3.9, 5.2, 6.0, 6.9, 8.1, 9.0])) == "contradicted"
    assert word(falls, both([5.0, 9.0, 4.0, 8.0, 5.0, 7.0])) == "undecided"
    assert word(falls, both([5.0] * 6)) == "undecided"
    assert word(falls, both([5.0, 4.0, 3.0])) == "not run"


def test_a_claim_of_most_rows_allows_the_others():
    """Of three rows, two must hold; the pair shown is the one that makes them most."""
    base = {"base": (60.0, 61.0, 62.0)}
    far, near, worse = (50.0, 51.2, 52.1), (55.1, 55.9, 57.2), (70.0, 71.2, 72.1)
    most = Comparison(**LM, first=("base",), second=("a", "b", "c"), claimed="above", of_most=True)
    verdict = judge(claim(most), numbers(**base, a=far, b=near, c=worse))
    assert verdict.word == "confirmed" and 4 < verdict.estimate.effect < 6
    assert word(most, numbers(**base, a=far, b=worse, c=worse)) == "contradicted"
    assert word(most, numbers(**base, a=far, b=(60.5, 60.4, 62.6), c=worse)) == "undecided"
    # One of the two that are asked for may be any of those that do not hold: p is doubled.
    unsure = (59.0, 59.5, 61.2)
    verdict = judge(claim(most), numbers(**base, a=far, b=unsure, c=worse))
    assert verdict.word == "undecided" and 0.025 < verdict.estimate.p < 0.05


def test_a_threshold_is_for_every_row():
    above = Threshold("table2", "test_ppl", "linear", ("a", "b"), 50.0, "above")
    assert word(above, numbers(a=(55.0, 55.1, 55.3), b=(52.0, 52.2, 52.1))) == "confirmed"
    assert word(above, numbers(a=(55.0, 55.1, 55.3), b=(42.0, 42.2, 42.1))) == "contradicted"
    assert word(above, numbers(a=(55.0, 55.1, 55.3), b=(48.0, 52.2, 51.1))) == "undecided"
    assert word(above, numbers(a=(55.0, 55.1, 55.3))) == "not run"


def test_updates_to_a_loss_are_on_the_line_between_validations():
    curve = [(50, 6.0), (100, 5.0), (150, 5.2), (200, 4.0)]
    found = [updates_to(curve, loss) for loss in (7.0, 5.5, 5.0, 4.6)]
    assert found == pytest.approx([50, 75, 100, 175])
    assert updates_to(curve, 3.9) is None
    assert updates_to([], 3.9) is None


def test_a_row_of_which_a_seed_never_reaches_the_loss_has_no_updates_to_it():
    """Not those of its other seeds, which would make it look fast. Base has no third seed."""

    def run(row, seed, *losses):
        curve = [(50 * (i + 1), loss) for i, loss in enumerate(losses)]
        metrics = {"curve": curve, "valid_loss": min(losses)}
        return {"row": row, "attention": "linear", "seed": seed, "metrics": metrics}

    runs = [run("base", s, 6.0, 5.0) for s in (1, 2)]
    runs += [run("rope", s, 5.5, 5.0 if s < 2 else 5.1) for s in (1, 2)]
    runs += [run("per", s, 5.0, 4.0) for s in (1, 2, 3)]
    cells = {(one["row"], "linear"): {} for one in runs}
    found = with_derived(TABLES["table8"], runs, cells)
    assert found["per", "linear"] == {"updates_to_reference": {1: 50.0, 2: 50.0}}
    assert found["base", "linear"] and found["rope", "linear"] == {}


@pytest.mark.usefixtures("real_pictures")
def test_damaged_results_stop_nothing(root, make_result, capsys):
    folder = root / "results" / "table2" / "toy"
    write_json(folder / "base-linear-s1.json", make_result("base", "linear", 1, 80.0))
    (folder / "rope-linear-s1.json").write_text("{")
    timings = root / "results" / "table9" / "cpu"
    write_json(timings / "rope-linear.json", {"row": "rope", "attention": "linear"})
    measured = {"relative_speed": 1.0, "quartiles": [0.9, 1.1]}
    good = {"row": "base", "attention": "linear", "metrics": measured}
    write_json(timings / "base-linear.json", good)
    write_json(timings.parent / "toy" / "cpu" / "base-linear.json", good)  # of a toy paper
    said: list[str] = []
    found = read_numbers(root, say=said.append)
    assert set(found) == {"toy", "cpu"}
    assert found["toy"].cells == {"table2": {}}
    assert found["cpu"].cells == {"table9": {("base", "linear"): {"relative_speed": {0: 1.0}}}}
    assert len(said) == 3 and "rope-linear-s1.json" in said[1] and "rope-linear.json" in said[2]
    assert main(["claims"], root) == 0
    assert all(f"Left out: {one}\n" in capsys.readouterr().err for one in said[:1])
    assert logging.root.manager.disable == logging.INFO, "libraries have nothing to say to users"
    trained = [one for one in CLAIMS if not isinstance(one.evidence, Speed | Computed)]
    page = (root / "results" / "claims.md").read_text()
    assert f"| `toy` | 0 | 0 | 0 | 0 | 0 | 0 | {len(trained)} | 0 |" in page
    for stem in ("claims", "claims-summary"):
        drawn = (root / "results" / f"{stem}.svg").read_text()
        assert f"{len(CLAIMS)} claims of the papers" in drawn and "not run" in drawn
        assert "a learned table ends" not in drawn, "there is no interval to draw"
    assert len(json.loads((root / "results" / "claims.json").read_text())) == len(CLAIMS)


def test_claims_are_written_where_results_are(root, make_result, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_PE_RESULTS", "")  # given back at the end
    elsewhere = tmp_path / "elsewhere"
    write_json(
        elsewhere / "table2" / "toy" / "base-linear-s1.json", make_result("base", "linear", 1, 80.0)
    )
    assert main(["claims", "--results", str(elsewhere)], root) == 0
    assert "| `toy` |" in (elsewhere / "claims.md").read_text()
    assert not (root / "results" / "claims.md").exists()


def test_claims_of_a_folder_that_is_not_there_are_refused(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAIRSEQ_PE_RESULTS", "")  # given back at the end
    nowhere = tmp_path / "nowhere"
    with pytest.raises(SystemExit) as stopped:
        main(["claims", "--results", str(nowhere)], root)
    assert stopped.value.code == 2
    assert f"`--results` must be a folder with results, but {nowhere}" in capsys.readouterr().err
    assert not nowhere.exists()


def test_the_page_has_every_verdict_and_the_json_the_same():
    one = claim(below())
    found = {"mini": {"one": judge(one, numbers(base=(60.0, 61.0, 62.0), rope=(50.0, 51.2, 52.1)))}}
    page = render_claims((one,), found).markdown()
    assert "| it is so | Table 1 | -0.61 | **confirmed** -9.90 (" in page
    assert "| `mini` | 1 | 0 | 0 | 0 | 0 | 0 |" in page
    (data,) = json.loads(json.dumps(as_data((one,), found)))
    assert data["verdicts"]["mini"]["verdict"] == "confirmed"
    assert data["verdicts"]["mini"]["effect"] == pytest.approx(-9.9)
    assert data["printed_effect"] == pytest.approx(-0.61)
    committed = json.loads((Path(__file__).parents[2] / "results" / "claims.json").read_text())
    assert [*data["verdicts"]["mini"]] == [*committed[0]["verdicts"]["mini"]]


def test_the_best_scale_has_an_interval():
    def found(word, *, low=-1.0):
        return Verdict(word, Estimate(1.0, low, 2.0, 0.5, 3))

    none, untested = Verdict("not run"), Verdict(Word.UNTESTED)
    verdicts = {
        "mini": {
            "both": found("confirmed"),
            "floor": untested,
            "alone": found("confirmed"),
            "untested": found("undecided", low=None),
            "one seed": found("undecided", low=None),
        },
        "published": {
            "both": found("undecided"),
            "floor": none,
            "alone": none,
            "untested": untested,
            "one seed": found("undecided", low=None),
        },
    }
    best = {name: scale for name, (scale, _) in best_verdicts(verdicts).items()}
    assert best == {
        "both": "published",
        "floor": "mini",
        "alone": "mini",
        "untested": "published",
        "one seed": "published",
    }
    left_out = set(verdicts["published"]) - set(drop_not_run(verdicts)["published"])
    assert left_out == {"alone", "floor"}


def test_a_claim_says_where_the_corrected_verdict_of_its_table_is_a_tie():
    """Of two rows by themselves p is 0.03; among the ten pairs of the paper's rows it is a tie."""
    table = TABLES["table2"]
    noise = {"base": 0.0, "spe": 0.3, "lrpe_type1": -0.2, "per": 0.1}
    metric = {row: {s: 40 + n + s * (1 + n) for s in range(3)} for row, n in noise.items()}
    metric["rope"] = {0: 40.0, 1: 41.0, 2: 42.0}
    metric["lrpe_type2"] = {0: 39.0, 1: 39.7, 2: 41.2}
    cells = {(row, "linear"): {"test_ppl": seeds} for row, seeds in metric.items()}
    numbers = ScaleResults({"table2": cells}, {})
    lower = Comparison("table2", "test_ppl", "linear", ("lrpe_type2",), ("rope",), "below")
    one = Claim("A paper", "one", "Table 1", "it is so", lower)
    verdict = judge(one, numbers)
    pair = JudgedTable(table, cells).pair("linear", "lrpe_type2", "rope")
    assert verdict.word == "confirmed" and verdict.estimate.p < 0.05 < pair.adjusted
    assert verdict.corrected == pair and verdict.is_corrected_tie
    page = render_claims((one,), {"mini": {"one": verdict}}).markdown()
    assert "| `mini` | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |" in page
    # A tie with a difference of 0 says nothing of a claim of at most 10 % more.
    as_good = replace(one, evidence=replace(lower, by=-10.0, relative=True))
    verdict = judge(as_good, numbers)
    assert verdict.word == "confirmed" and verdict.corrected is None


def test_a_claim_on_a_metric_that_a_scale_does_not_measure_cannot_be_tested():
    """SQuAD v2.0 at scale published, also in correlations; v1.1 is judged."""
    v1, v2 = (next(c for c in CLAIMS if c.name == f"{v}-none") for v in ("v1", "v2"))
    cells = {("none", "vanilla"): {"v1_exact": {1: 20.0}}}
    numbers = ScaleResults({"bert_table4": cells}, {}, PUBLISHED)
    verdict = judge(v2, numbers)
    assert verdict.word == Word.UNTESTED and "v2.0" in verdict.missing
    assert judge(v1, numbers).word == judge(v2, replace(numbers, scale="mini")).word == Word.NOT_RUN
    correlations = [c for c in CLAIMS if isinstance(c.evidence, Correlation)]
    words = {c.name: judge(c, numbers).word for c in correlations}
    assert {words[c.name] for c in correlations if c.evidence.with_[1] == "v2_exact"} == {
        Word.UNTESTED
    }
    assert {words[c.name] for c in correlations if c.evidence.with_[1] == "v1_exact"} == {
        Word.NOT_RUN
    }
    judged = judge_by_scale(CLAIMS, {PUBLISHED: numbers})[PUBLISHED]
    assert "v1-none" in judged and "v2-short-samples" not in judged
    metrics = [column.metric for column in BERT_SQUAD_TABLE.at(PUBLISHED).columns]
    assert metrics == ["v1_f1", "v1_exact"] and BERT_SQUAD_TABLE.at("mini") is BERT_SQUAD_TABLE


@pytest.mark.parametrize(("effect", "text"), [(-0.001, "+0.00 r"), (-0.009, "-0.01 r")])
def test_an_effect_that_rounds_to_zero_has_the_sign_that_tables_give_it(effect, text):
    estimate = Estimate(effect)

    assert effect_text(estimate, Verdict(Word.UNDECIDED, estimate, "r")) == text
