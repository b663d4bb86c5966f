"""Learning curves in results: read from logs, thinned, and not needed by older results."""

import json
import math
from pathlib import Path

import pytest

from fairseq_plugins.cli.table_options import get_parser
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.papers.lrpe import TABLE_8
from fairseq_plugins.records import logs, results
from fairseq_plugins.records.recipe_files import read_content, write_result
from fairseq_plugins.report.render import figure_page
from fairseq_plugins.site import charts
from fairseq_plugins.site.compare import compare_data
from fairseq_plugins.site.reading import read_evidence
from fairseq_plugins.site.runs import table_cells
from fairseq_plugins.statistics.table_results import Evidence

ROOT = Path(__file__).parents[2]
MINI = ROOT / "results" / "table2" / "mini"


def line(**numbers: float) -> str:
    words = {key: str(value) for key, value in numbers.items()}
    return f"[2026-01-01] - {json.dumps(words)}\n"


def write_log(path: Path, updates: int) -> None:
    """Every tenth update is printed, every hundredth validated; the first loss is infinite."""
    losses = [math.inf, *(8 - 0.001 * step for step in range(20, updates + 1, 10))]
    text = "".join(
        line(num_updates=step, loss=loss, wps=1000)
        + (line(valid_num_updates=step, valid_loss=loss + 1) if step % 100 == 0 else "")
        for step, loss in zip(range(10, updates + 1, 10), losses, strict=True)
    )
    path.write_text(text)


def test_a_long_curve_is_thinned_evenly_and_keeps_its_ends(tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", 5000)
    found = logs.read_curves(tmp_path / "train.log")
    assert len(found["train"]) == logs.MOST_POINTS
    assert found["train"][0] == [20, 7.98]  # what is infinite has no place on an axis
    assert found["train"][-1] == [5000, 3.0]
    steps = [b[0] - a[0] for a, b in zip(found["train"], found["train"][1:], strict=False)]
    assert max(steps) - min(steps) <= 10
    assert len(found["valid"]) == logs.MOST_POINTS
    assert found["valid"][-1] == [5000, 4.0]


def test_a_short_curve_is_kept_whole_and_none_is_left_out(tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", 90)
    found = logs.read_curves(tmp_path / "train.log")
    assert [step for step, _ in found["train"]] == list(range(20, 91, 10))
    assert "valid" not in found
    (tmp_path / "train.log").write_text("nothing\n")
    assert logs.read_curves(tmp_path / "train.log") == {}


def committed() -> results.Result:
    """A result of before curves were recorded."""
    result: results.Result = read_content(MINI / "rope-linear-s1.json")
    result.pop("curves", None)
    return result


def test_a_result_with_curves_is_a_result_and_so_is_one_without() -> None:
    result = committed()
    results.check_result(result, LANGUAGE_MODEL.metrics)
    assert results.curves_of(result) == {}
    result["curves"] = {"": {"train": [[10, 5.5], [20, 5.0]]}}
    results.check_result(result, LANGUAGE_MODEL.metrics)
    assert results.curves_of(result) == {("", "train"): [(10, 5.5), (20, 5.0)]}


@pytest.mark.parametrize(
    "curves",
    [{"": {"train": [[10]]}}, {"": {"test": [[10, 5.0]]}}, {"": {"valid": []}}, [[10, 5.0]]],
    ids=["no loss", "another kind", "empty", "no training"],
)
def test_curves_that_are_none_are_refused(curves: object) -> None:
    with pytest.raises(ValueError, match="curves"):
        results.check_result({**committed(), "curves": curves}, LANGUAGE_MODEL.metrics)


def test_older_results_have_the_curve_among_their_metrics() -> None:
    path = ROOT / "results" / "table8" / "mini" / "base-linear-s1.json"
    result = results.load_result(path, EXPERIMENTS["mlm"].metrics)
    result.pop("curves", None)
    curve = [tuple(point) for point in result["metrics"]["curve"]]
    assert results.curves_of(result) == {("", "valid"): curve}


def test_a_page_of_curves_has_the_notes_of_its_table_and_no_cells() -> None:
    folder = ROOT / "results" / "table8" / "mini"
    schema = EXPERIMENTS["mlm"].metrics
    shown = [results.load_result(folder / f"base-linear-s{s}.json", schema) for s in (1, 2)]
    page = figure_page(TABLE_8, TABLE_8.figures[1], "mini", shown).markdown()
    assert "the same for every row and at every evaluation" in page
    assert "Runs: seeds 1 / 2" in page.partition("<details>")[2]
    assert "†" not in page
    assert page.startswith("# LRPE, Figure 2, scale `mini`")
    own = figure_page(TABLE_8, TABLE_8.figures[1], "mine", shown, is_study=True).markdown()
    assert own.startswith("# LRPE, Figure 2, study `mine`")


def test_the_help_says_where_the_figure_of_a_study_is() -> None:
    said = " ".join(get_parser("table8").format_help().split())
    assert "results/table8/<name>, results/figure2/<name>" in said
    assert "figure2" not in get_parser("table2").format_help()


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """A run of Table 2 as it is recorded from now on, beside one of before."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    folder = tmp_path / "results" / "table2" / "mini"
    folder.mkdir(parents=True)
    before = read_content(MINI / "base-linear-s1.json")
    before.pop("curves", None)
    write_result(folder / "base-linear-s1.json", before)
    write_log(tmp_path / "train.log", 1200)
    result = {**committed(), "curves": {"": logs.read_curves(tmp_path / "train.log")}}
    (folder / "rope-linear-s1.json").write_text(json.dumps(result))
    return read_evidence(tmp_path, processes=1)


def test_the_page_that_compares_has_the_curves_of_a_language_model(evidence: Evidence) -> None:
    (found,) = evidence.tables
    (table,) = compare_data(evidence, {found.page: table_cells(found)})["tables"]
    curves = {cell["row"]: cell["curves"] for cell in table["cells"]}
    assert curves["base"] == {}
    assert [*curves["rope"][1]] == ["validation", "training"]
    chart = charts.lines(curves["rope"][1], x="updates", y="loss", shown=["validation"])
    assert [trace["visible"] for trace in chart["data"]] == [True, "legendonly"]
