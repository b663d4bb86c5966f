"""The sweep of denominators: a column is linear attention with its own, and nothing else."""

import json
from pathlib import Path

import pytest

from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.extrapolation import TRANSLATION_LENGTHS
from fairseq_plugins.papers.floor_sweep import CLAMPED, FLOOR_SWEEP, FLOORS, OUTPUT_NORMS, PLAIN
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.figures import draw_figure
from fairseq_plugins.report.render import render
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.judged import JudgedTable

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DIFFER = {"min_cosine", "linear_normalizer", "linear_output_norm"}


def planned(attention: str, table: str = FLOOR_SWEEP.name):
    (training,) = plan_run(CONFIGS, Run(table, "mini", "rope", attention, 2), Devices(0)).trainings
    return training


@pytest.mark.parametrize("word", FLOOR_SWEEP.attentions)
def test_a_column_is_table_2_with_its_own_denominator(word):
    theirs, ours = planned("linear", "table2").config, planned(word).config
    assert ours["model"]["attention_type"] == "linear"
    assert {key: ours["model"][key] for key in ours["model"] if key not in DIFFER} == {
        key: theirs["model"][key] for key in theirs["model"] if key not in DIFFER
    }
    assert {key: ours[key] for key in ours if key not in ("model", "checkpoint")} == {
        key: theirs[key] for key in theirs if key not in ("model", "checkpoint")
    }


def test_the_command_says_the_floor():
    for word, floor in FLOORS.items():
        assert f"model.min_cosine={floor}" in planned(word).command
        assert planned(word).config["model"]["min_cosine"] == floor
        assert planned(word).config["model"]["linear_normalizer"] == "encoded"
    for word in (PLAIN, CLAMPED):
        assert planned(word).config["model"]["linear_normalizer"] == word
    for word in OUTPUT_NORMS:
        model = planned(word).config["model"]
        assert (model["linear_normalizer"], model["linear_output_norm"]) == ("output_norm", word)


def test_a_page_of_models_trained_anew_says_that_they_are_other_runs(make_result):
    table = TRANSLATION_LENGTHS
    result = make_result("rope", table.attentions[0], 1, 70.0, table=table.name)
    result["metrics"] |= {"sentences": {}}
    notes = " ".join(experiment_of(table.name).caption_notes([result]))
    assert "may then differ from the model of the same row and seed in Table 4" in notes
    assert "trained again" not in " ".join(experiment_of("table2").caption_notes([result]))


VALUES = {"floor_0": 80.0, "clamped": 70.0, "plain": 70.1}


@pytest.fixture
def results(make_result):
    """Three rows, the first of which is worse without a floor; one has two seeds alone."""
    return [
        make_result(row, word, seed, value + seed + seed * seed / 50, table=FLOOR_SWEEP.name)
        for row, seeds in (("rope", (1, 2, 3)), ("lrpe_type2", (1, 2, 3)), ("lrpe_type8", (1, 2)))
        for word, value in VALUES.items()
        for seed in seeds
    ]


def test_a_row_is_compared_with_itself_under_the_denominator_of_table_2(results):
    results[0]["metrics"]["test_ppl"] += 0.5  # else all seeds differ alike, and nothing varies
    cells = gather(results, FLOOR_SWEEP.columns)
    found = JudgedTable(FLOOR_SWEEP, cells).within_rows("clamped")
    rows = ("rope", "lrpe_type2", "lrpe_type8")
    assert set(found) == {(r, a) for r in rows for a in ("floor_0", "plain")}
    assert found["rope", "floor_0"].effect == pytest.approx(10 + 0.5 / 3)
    assert found["rope", "floor_0"].seeds == 3 and found["rope", "floor_0"].is_significant
    assert found["lrpe_type8", "plain"].effect == pytest.approx(0.1)
    assert (
        found["lrpe_type8", "plain"].seeds == 0 and not found["lrpe_type8", "plain"].is_significant
    )
    page = render(JudgedTable.of(FLOOR_SWEEP, results), "mini").markdown()
    section = page.partition("## Differences from clamped denominator\n")[2].partition("\n## ")[0]
    assert "of the same row with clamped denominator" in section
    assert "| Method | floor 0 | plain denominator |" in section
    assert "| `rope` | +10.17† (+9.45 to +10.88) | +0.10 (" in section
    assert "Differences from clamped" not in render(JudgedTable.of(TABLE_2, []), "mini").markdown()


def test_every_denominator_is_compared_with_the_output_norm_too(make_result):
    """Seed by seed, with an interval, on a section of its own."""
    results = [
        make_result("rope", word, seed, value + seed / 10, table=FLOOR_SWEEP.name)
        for word, value in (("floor_20", 75.0), ("clamped", 73.0), ("layer_norm", 72.0))
        for seed in (1, 2, 3)
    ]
    results[0]["metrics"]["test_ppl"] += 0.5
    page = render(JudgedTable.of(FLOOR_SWEEP, results), "mini").markdown()
    section = page.partition("## Differences from layer norm of the output\n")[2]
    assert "| Method | floor 0.2 | clamped denominator |" in section
    assert "| `rope` | +3.17† (+2.45 to +3.88) | +1.00" in section


def test_pages_call_a_floor_by_its_number(results):
    page = render(JudgedTable.of(FLOOR_SWEEP, results), "mini").markdown()
    assert "| Method | Floor 0: PPL (valid) |" in page and "Plain denominator: PPL (valid)" in page
    assert TABLE_2.name_of("linear") == FLOOR_SWEEP.name_of("linear") == "linear attention"


def test_the_reference_is_the_denominator_of_table_2():
    reference = FLOOR_SWEEP.reference_attentions[0]
    assert planned("linear", "table2").config["model"]["linear_normalizer"] == reference


@pytest.mark.usefixtures("real_pictures")
def test_its_figure_has_every_row_over_the_floors(tmp_path, make_result):
    """As far as there are results; no floor is a column of all rows."""
    results = [
        make_result(row, floor, seed, 70.0 + seed, table="floor_sweep")
        for row, floor, seed in (("rope", "floor_0", 1), ("rope", "plain", 1), ("rope", "plain", 2))
    ]
    draw_figure(tmp_path / "results", FLOOR_SWEEP, FLOOR_SWEEP.figures[0], "mini", results)
    folder = tmp_path / "results" / "floor_sweep"
    assert (folder / "mini.png").is_file() and "0.4" in (folder / "mini.svg").read_text()
    rows = json.loads((folder / "mini.json").read_text())["rows"]
    assert {name: row["seeds"] for name, row in rows.items()} == {
        "rope-floor_0": 1,
        "rope-plain": 2,
    }
