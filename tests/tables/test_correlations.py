"""Table 5 of the BERT paper: from its own numbers as printed, and from results."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fairseq_plugins.papers import CLAIMS, PUBLISHED, TABLES
from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PRINTED, PROPERTIES, ROWS
from fairseq_plugins.report.claims_page import held_text, render_claims
from fairseq_plugins.report.correlations import Correlations, grid
from fairseq_plugins.statistics.comparisons import printed_cells
from fairseq_plugins.statistics.correlations import correlate, over_rows
from fairseq_plugins.statistics.inference import Estimate, partial_correlation
from fairseq_plugins.statistics.scale_results import ScaleResults
from fairseq_plugins.statistics.verdicts import judge

NAMES = ("bert_table2", "bert_table3", "bert_table4")
PAPER = {name: printed_cells(TABLES[name]) for name in NAMES}
CELLS = [(own, task) for own, numbers in PRINTED.items() for task in numbers]


def tolerance(own: str, task: str) -> float:
    """What rounding may do: symmetry is printed with one or two digits that count."""
    if own != "symmetry":
        return 0.006
    return 0.011 if task.endswith("exact") else 0.025


@pytest.mark.parametrize(("own", "task"), CELLS)
def test_the_papers_tables_give_its_table_5(own: str, task: str) -> None:
    found = correlate(PAPER, "")[own, task]
    assert len(found.rows) == 12 and "none" not in found.rows
    assert found.estimate is not None
    assert found.estimate.effect == pytest.approx(PRINTED[own][task].mean, abs=tolerance(own, task))


def test_squad_is_by_exact_matches_and_not_by_f1() -> None:
    found, far = correlate(PAPER, ""), {"v1_exact": 0.0, "v1_f1": 0.0}
    for own, numbers in PRINTED.items():
        for task in far:
            one = found[own, task].estimate
            assert one is not None
            far[task] = max(far[task], abs(one.effect - numbers["v1_exact"].mean))
    assert far["v1_exact"] < 0.01 < 0.09 < far["v1_f1"]


def test_row_none_would_make_correlations_large() -> None:
    """The paper's footnote 11."""
    pair = ("bert_table2", "monotonicity"), ("bert_table4", "v1_exact")
    without = over_rows(PAPER, *pair, "vanilla", ROWS, "").estimate
    with_none = over_rows(PAPER, *pair, "vanilla", ("none", *ROWS), "").estimate
    assert without is not None and with_none is not None
    assert abs(without.effect) < 0.4 < 0.8 < abs(with_none.effect)


def test_a_correlation_near_0_has_no_minus() -> None:
    pair = ("symmetry", "average")
    near = replace(correlate(PAPER, "")[pair], estimate=Estimate(-0.001, -0.5, 0.5, 0.9))
    found = {**correlate(PAPER, ""), pair: near}
    shown = [n.ours for _, task, line in grid(found) if task.metric == "average" for n in line]
    assert "+0.00" in shown and "-0.00" not in shown


def test_every_property_meets_every_task() -> None:
    found = correlate(PAPER, "")
    assert len(found) == 6 * 14 == len(PROPERTIES) * len(PERFORMANCES)
    for one in found.values():
        assert one.estimate is not None and one.estimate.low is not None
        assert one.estimate.high is not None and one.estimate.adjusted is not None
        assert -1 <= one.estimate.low < one.estimate.effect < one.estimate.high <= 1
        assert one.estimate.adjusted >= one.estimate.p


def cells(count: int) -> dict[str, dict]:
    """Results of the first rows, two seeds each; MNLI is the same in all of them."""
    draw = np.random.default_rng(3)
    found: dict[str, dict] = {name: {} for name in NAMES}
    for row in ("none", *ROWS[:count]):
        for name, table in found.items():
            metrics = [column.metric for column in TABLES[name].columns]
            values = {m: {s: float(draw.uniform(1, 90)) for s in (1, 2)} for m in metrics}
            table[row, "vanilla"] = values
        found["bert_table3"][row, "vanilla"]["MNLI"] = {1: 33.0, 2: 33.0}
    return found


def test_ours_are_of_the_models_that_were_fine_tuned() -> None:
    """Of seed 1, and how well they do is a mean over the seeds of the fine-tuning."""
    ours = cells(5)
    found = correlate(ours, "mini")["symmetry", "v1_exact"]
    assert found.rows == ROWS[:5] and found.estimate is not None
    table_2, table_4 = ours["bert_table2"], ours["bert_table4"]
    sides = [
        [table_2[row, "vanilla"]["symmetry"][1] for row in ROWS[:5]],
        [np.mean([*table_4[row, "vanilla"]["v1_exact"].values()]) for row in ROWS[:5]],
    ]
    assert found.estimate.effect == pytest.approx(np.corrcoef(sides)[0, 1])
    assert correlate(cells(3), "mini")["symmetry", "v1_exact"].estimate is None
    assert correlate(ours, "mini")["symmetry", "MNLI"].estimate is None
    del table_2[ROWS[0], "vanilla"]["symmetry"][1]
    assert correlate(ours, "mini")["symmetry", "v1_exact"].rows == ROWS[1:5]


def test_at_published_each_seed_has_a_model_of_its_own() -> None:
    ours = cells(5)
    found = correlate(ours, PUBLISHED)["symmetry", "v1_exact"].estimate
    sides = [
        [np.mean([*ours[table][row, "vanilla"][metric].values()]) for row in ROWS[:5]]
        for table, metric in (("bert_table2", "symmetry"), ("bert_table4", "v1_exact"))
    ]
    assert found is not None and found.effect == pytest.approx(np.corrcoef(sides)[0, 1])
    assert found != correlate(ours, "mini")["symmetry", "v1_exact"].estimate


def test_the_similarity_to_the_published_model_stands_beside_the_properties() -> None:
    ours = cells(6)
    notes = Correlations(PUBLISHED, ScaleResults(ours, {}, PUBLISHED)).notes
    assert not any("similarity to" in note for note in notes)
    for row, exact in zip(ROWS, (50.0, 52.0, 40.0, 44.0, 57.0, 41.0), strict=False):
        cell = ours["bert_table4"][row, "vanilla"]
        cell["v1_exact"], cell["start_cosine"] = {1: exact}, {1: exact / 60}
    (note,) = [
        note
        for note in Correlations(PUBLISHED, ScaleResults(ours, {}, PUBLISHED)).notes
        if "similarity to" in note
    ]
    assert "EM, v1.1 +1.00 (" in note and "MNLI" not in note


def test_what_similarity_explains_is_left_out_where_it_is_held_constant() -> None:
    """As the correlation of what a line over similarity leaves, with one degree of freedom less."""
    draw = np.random.default_rng(1)
    near = draw.uniform(0.8, 1.0, 12)
    own, task = 2 * near + draw.normal(0, 0.02, 12), 50 * near + draw.normal(0, 0.5, 12)
    rest = [side - np.polyval(np.polyfit(near, side, 1), near) for side in (own, task)]
    found = partial_correlation([*own], [*task], [*near])
    assert found is not None and found.low is not None and found.p is not None
    assert found.effect == pytest.approx(np.corrcoef(rest)[0, 1])
    assert np.arctanh(found.effect) - np.arctanh(found.low) == pytest.approx(1.959964 / 8**0.5)
    score = found.effect * (9 / (1 - found.effect**2)) ** 0.5
    assert found.p == pytest.approx(2 * stats.t.sf(abs(score), 9))
    assert partial_correlation([*near], [*task], [*near]) is None
    assert partial_correlation([*own], [*task], [1.0] * 12) is None

    ours = cells(12)
    for row, *values in zip(ROWS, own, task, near, strict=True):
        cell = ours["bert_table4"][row, "vanilla"]
        ours["bert_table2"][row, "vanilla"]["monotonicity_20"] = {1: values[0]}
        cell["v1_exact"], cell["start_cosine"] = {1: values[1]}, {1: values[2]}
    numbers = ScaleResults(ours, {}, PUBLISHED)
    text = f"{found.effect:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
    page = Correlations(PUBLISHED, numbers).render().markdown()
    _, _, section = page.partition("## With similarity to the published model held constant")
    assert re.search(rf"^\| EM, v1.1 \| [^|]*\| {re.escape(text)} \|", section, re.M)
    name = "correlation-monotonicity-20-v1-exact"
    (claim,) = [one for one in CLAIMS if one.name == name]
    verdict = judge(claim, numbers)
    unit = text.replace(" (", " r (")
    assert verdict.held == found and held_text(verdict) == unit
    assert (
        f"with similarity held constant {unit}"
        in render_claims([claim], {PUBLISHED: {name: verdict}}).markdown()
    )
    assert held_text(judge(claim, ScaleResults(cells(12), {}, PUBLISHED))) == ""


def test_the_page_has_both_numbers_and_says_what_is_missing(tmp_path) -> None:
    ours = cells(5)
    path = Correlations("mini", ScaleResults(ours, {}, "mini")).write(tmp_path)
    page = (tmp_path / path).read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| EM, v1.1 | -0.31 / ")]
    estimate = correlate(ours, "mini")["monotonicity", "v1_exact"].estimate
    assert estimate is not None
    assert f"-0.31 / {estimate.effect:+.2f}" in line
    assert f"Without results: `{ROWS[5]}`" in page
    assert "| MNLI | +0.56 / - | -0.24 / - |" in page
    data = json.loads((tmp_path / path).with_suffix(".json").read_text())["correlations"]
    assert len(data) == 84
    (one,) = [d for d in data if (d["property"], d["performance"]) == ("monotonicity", "v1_exact")]
    assert one["printed"] == -0.31
    assert one["ours"]["effect"] == pytest.approx(estimate.effect, rel=1e-9)
    assert one["rows"] == list(ROWS[:5])
    assert "![On Position Embeddings in BERT, Table 5 as a figure](mini.png)" in page
    assert "`site/report/bert_table5-mini.html`" in page
    assert (tmp_path / path).with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_tasks_that_no_row_learns_are_named() -> None:
    floors = {"bert_table4": {"v2_f1": {"answers nothing": 99.0}}}
    found = Correlations("mini", ScaleResults(cells(5), floors))
    assert list(found.lost) == ["v2_f1"]
    assert any(
        "significantly better than that of *answers nothing*" in note for note in found.notes
    )


def test_direction_balance_is_correlated_by_its_distance_from_1_too() -> None:
    ours = cells(6)
    for row, ratio in zip(ROWS, (0.9, 0.95, 0.99, 1.02, 1.04, 1.11), strict=False):
        ours["bert_table2"][row, "vanilla"]["direction_balance"] = {1: ratio}
        ours["bert_table4"][row, "vanilla"]["v1_exact"] = {1: 100 * abs(ratio - 1) + ratio}
    by_ratio = correlate(ours, "mini")["direction_balance", "v1_exact"].estimate
    assert by_ratio is not None and by_ratio.effect < 0.5
    notes = Correlations("mini", ScaleResults(ours, {}, "mini")).notes
    (said,) = [note for note in notes if "where direction balance is 1" in note]
    assert "Here 3 of 6 rows are below 1" in said and "EM, v1.1 +1.00 (" in said
    for row in ROWS:
        ours["bert_table2"].pop((row, "vanilla"), None)
    notes = Correlations("mini", ScaleResults(ours, {}, "mini")).notes
    assert not any("direction balance is 1" in note for note in notes)
