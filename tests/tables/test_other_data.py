"""Results that are not comparable: of other data, or without a task of an average."""

import pytest

from fairseq_plugins.common.provenance import different_folders
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.glue_scores import Scores
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.results import mismatch, other_data, run_of
from fairseq_plugins.report.captions import caption
from fairseq_plugins.statistics import table_results
from fairseq_plugins.statistics.table_results import TableFolder

LABELS = ("CoLA", "SST-2", "RTE")


def folder(examples: int) -> dict[str, object]:
    return {"request": {"corpus": "x"}, "splits": {"train": {"examples": examples}}}


def folders(**examples: int) -> dict[str, object]:
    return {
        "request": {f"data/{name}": {"corpus": name} for name in examples},
        "splits": {f"data/{name}": {"train": {"examples": n}} for name, n in examples.items()},
        "dictionary_size": dict.fromkeys((f"data/{name}" for name in examples), 100),
    }


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (folder(8), folder(8), []),
        (folder(8), folder(9), [""]),
        (folders(CoLA=8, RTE=2), folders(CoLA=8, RTE=2), []),
        (folders(CoLA=8, RTE=2), folders(CoLA=9, RTE=2), ["data/CoLA"]),
        (folders(CoLA=8, RTE=2), folders(RTE=2, WNLI=1), []),  # each lacks a folder
        (folders(CoLA=8), folders(RTE=2), ["data/CoLA", "data/RTE"]),
    ],
)
def test_folders_of_two_descriptions(one, other, names):
    assert different_folders(one, other) == names


def test_under_an_attention_the_newest_result_decides(make_result):
    made = [make_result("rope", "linear", seed, 60.0, data=folder(8)) for seed in (1, 2)]
    made += [make_result("rope", "vanilla", 1, 60.0, data=folder(9))]
    assert other_data(made) == {}
    newer = make_result("base", "linear", 1, 60.0, data=folder(9))
    newer["finished_at"] = "2027-01-01T00:00:00+00:00"
    found = other_data([*made, newer])
    assert [*found] == ["rope-linear-s1", "rope-linear-s2"]
    assert "whose data differ from those of the newest result." in found["rope-linear-s1"]


def test_a_result_without_a_folder_is_of_the_same_data(make_result):
    """Its page shows it also where the data are there to compare with."""
    result = make_result("rope", "linear", 1, 60.0, data=folders(RTE=2))
    run = run_of(result)
    assert mismatch(result, run, result["config"], folders(CoLA=8, RTE=2)) == []
    assert mismatch(result, run, result["config"], folders(RTE=3)) == ["the data differs"]


def scored(**scores: float) -> dict[str, object]:
    metrics = {name.replace("_", "-"): score for name, score in scores.items()}
    averaged = [name for name in LABELS if name in metrics]
    average = round(sum(metrics.values()) / len(metrics), 4)
    floors = {
        f"data/{name}": {"valid": {"majority class": {"accuracy": 50.0}}} for name in averaged
    }
    return {
        "row": "rope" if "CoLA" in metrics else "base",
        "metrics": {**metrics, "average": average, "averaged": averaged},
        "data": {"floors": floors},
    }


def test_averages_are_over_the_tasks_that_all_results_have():
    whole, partial = scored(CoLA=10.0, SST_2=80.0, RTE=60.0), scored(SST_2=90.0, RTE=60.0)
    assert Scores.comparable([whole, whole]) == [whole, whole]
    found = Scores.comparable([whole, partial])
    assert [one["metrics"]["average"] for one in found] == [70.0, 75.0]
    assert all(one["metrics"]["averaged"] == ["SST-2", "RTE"] for one in found)
    assert found[0]["metrics"]["CoLA"] == 10.0
    # Its baseline would be in that of the average.
    assert [*found[0]["data"]["floors"]] == ["data/SST-2", "data/RTE"]
    assert whole["metrics"]["average"] == 50.0


def test_a_result_that_the_page_leaves_out_changes_no_average(monkeypatch, tmp_path):
    made = [scored(CoLA=10.0, SST_2=80.0, RTE=60.0), scored(SST_2=90.0, RTE=60.0)]
    for result in made:
        cell = {"table": "table3", "attention": "vanilla", "scale": "mini", "seed": 1}
        result |= {**cell, "config": {}, "finished_at": "2026-01-01T00:00:00+00:00"}
    monkeypatch.setattr(table_results, "read_results", lambda *_: made)
    left_out = {"base": "an older recipe"}
    monkeypatch.setattr(
        TableFolder, "_mismatch", lambda _, configs, rows, run, result: left_out.get(run.row, "")
    )
    monkeypatch.setattr(table_results.PretrainedModel, "of", lambda config: None)
    experiment = EXPERIMENTS[TABLES["table3"].experiment]
    folder = TableFolder(tmp_path, TABLES["table3"], experiment.scales["mini"])
    (shown,), (reason,) = folder._own_results()
    assert shown["metrics"]["average"] == 50.0 and "an older recipe" in reason


def test_the_page_says_which_task_is_in_no_average():
    results = Scores.comparable([scored(CoLA=10.0, SST_2=80.0), scored(SST_2=90.0)])
    for result in results:
        result["metrics"] |= {"tried": {"SST-2-lr0.0001": 80.0}, "replaced": []}
        result |= {"config": {"dataset": {}}, "scale": "mini"}
    notes = EXPERIMENTS["bert_glue"].caption_notes(results)
    (note,) = (n for n in notes if "CoLA" in n)
    assert note.startswith("The averages here leave out CoLA: runs of `base` have no number for it")
    assert "differences between averages cannot be compared with the paper's" in note


def test_a_page_says_where_attentions_have_other_data(make_result):
    same = [make_result("rope", a, 1, 60.0, data=folder(8)) for a in ("linear", "vanilla")]
    table = TABLES["table2"]
    assert "prepared differently" not in " ".join(caption(table, "mini", same).notes)
    mixed = [same[0], make_result("rope", "vanilla", 1, 60.0, data=folder(9))]
    notes = caption(table, "mini", mixed).notes
    assert any(
        "vanilla attention were prepared differently from those under linear" in n for n in notes
    )
