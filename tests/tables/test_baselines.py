"""A page does not order rows that are no better than what needs no model."""

import copy

import pytest

from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.bert import BERT_SQUAD_TABLE
from fairseq_plugins.papers.claims import Claim, Comparison
from fairseq_plugins.papers.lrpe import PERPLEXITIES, TABLE_2, TABLE_3, TABLE_8
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.report.baselines import baselines_section
from fairseq_plugins.report.render import render
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.inference import above
from fairseq_plugins.statistics.judged import JudgedTable, baselines_of, best_baseline
from fairseq_plugins.statistics.scale_results import ScaleResults
from fairseq_plugins.statistics.verdicts import Word, judge

TEST = PERPLEXITIES[1]
UNIGRAM = {
    "valid": {"unigram": {"ppl": 250.0}},
    "test": {"unigram": {"ppl": 256.0}},
}


@pytest.fixture
def made(make_result):
    """Runs of two rows, three seeds each, whose data says its floors."""

    def make(base, rope, floors=UNIGRAM):
        found = [
            make_result(row, "linear", seed, value + seed + offset * seed)
            for row, value, offset in (("base", base, 0.0), ("rope", rope, 0.1))
            for seed in (1, 2, 3)
        ]
        for result in found:
            result["data"] = {**copy.deepcopy(result["data"]), "floors": floors}
        return found

    return make


def test_floors_of_a_language_model_are_word_frequencies(made):
    floors = baselines_of(TABLE_2, made(80.0, 70.0))
    assert floors == {"valid_ppl": {"unigram": 250.0}, "test_ppl": {"unigram": 256.0}}
    data = DataDescription.model_validate({"floors": UNIGRAM})
    assert EXPERIMENTS[TABLE_8.experiment].baselines(data, "mini")["valid_loss"][
        "unigram"
    ] == pytest.approx(7.966, abs=1e-3)
    assert baselines_of(TABLE_2, made(80.0, 70.0, None)) == {}


def test_floors_that_only_later_results_have_are_there_too(make_result):
    """As those that preparation has measured since; of what both have the fuller one counts."""

    def result(row, predictors):
        found = {name: {"accuracy": value} for name, value in predictors.items()}
        floors = {"data/glue/QNLI": {"valid": found}, "data/novels": None}
        return make_result(row, "linear", 1, 80.0, table="table3", data={"floors": floors})

    older, newer = {"bag of words": 52.6}, {"bag of words": 52.5, "shared words": 71.6}
    for results in ([older, newer], [newer, older]):
        found = baselines_of(TABLE_3, [result("base", one) for one in results])
        assert found["QNLI"] == {"bag of words": 52.5, "shared words": 71.6}
        assert found["average"]["the best for each task"] == 71.6


def test_rows_that_are_better_are_ordered(made):
    results = made(80.0, 70.0)
    page = render(JudgedTable.of(TABLE_2, results), "mini").markdown()
    assert "| unigram | 250.00 | 256.00 |" in page
    # The rope's mean over seeds is 70 + 2 + 0.2, below the floors of 250 and 256.
    assert "| lead of the best row under linear attention |" in page
    assert "| +183.80 |" in page
    assert "best row under vanilla" not in page, "nothing was run there"
    assert "the paper's order holds in 1" in page
    assert "is significantly better than that of *" not in page
    assert JudgedTable(TABLE_2, gather(results, PERPLEXITIES)).rows_above(
        "linear", TEST, 256.0
    ) == ["base", "rope"]


def test_rows_beyond_the_paper_are_no_part_of_how_sure_its_rows_are():
    """The difference of Base alone has p = 0.02, which a correction over ten rows would lose."""
    values = {"base": (99.0, 98.5, 98.8), **{f"x{i}": (100.0, 101.0, 99.0) for i in range(9)}}
    cells = {(row, "linear"): {"test_ppl": dict(enumerate(v))} for row, v in values.items()}
    alone = above(dict(enumerate(values["base"])), 100.0)
    assert 0.005 < alone.p < 0.05
    assert JudgedTable(TABLE_2, cells).rows_above("linear", TEST, 100.0) == ["base"]


def test_rows_that_are_not_better_are_in_no_order(made):
    """However sure their difference is."""
    page = render(JudgedTable.of(TABLE_2, made(300.0, 280.0)), "mini").markdown()
    told = "no row's PPL (test) is significantly better than that of *unigram*, 256.00"
    assert f"**Linear attention**: {told}, so no ordering is claimed." in page
    assert "the paper's order holds" not in page


def test_a_claim_needs_a_row_that_is_better_than_its_floor(made):
    lower = Comparison("table2", "test_ppl", "linear", ("rope",), ("base",), "below")
    for values, word in (((80.0, 70.0), Word.CONFIRMED), ((300.0, 280.0), Word.UNTESTED)):
        results = made(*values)
        cells = {"table2": gather(results, PERPLEXITIES)}
        numbers = ScaleResults(cells, {"table2": baselines_of(TABLE_2, results)})
        verdict = judge(Claim("A paper", "one", "Table 1", "it is so", lower), numbers)
        assert verdict.word == word
        assert ("unigram" in verdict.missing) == (word == Word.UNTESTED)


def test_floors_of_glue_are_by_column_and_on_average():
    def task(majority, bag):
        predictors = {"majority class": majority, "bag of words": bag}
        return {"valid": {name: {"accuracy": value} for name, value in predictors.items()}}

    floors = {
        "data/novels": {"valid": {"unigram": {"ppl": 200.0}}},
        **{f"data/glue/{name}": task(50.0, 60.0) for name in ("QNLI", "QQP", "MNLI")},
        "data/glue/SST-2": task(52.0, 80.0),
    }
    data = DataDescription.model_validate({"floors": floors})
    found = EXPERIMENTS["lrpe_glue"].baselines(data, "mini")
    assert found["SST-2"] == {"majority class": 52.0, "bag of words": 80.0}
    best = "the best for each task"
    assert found["average"] == {"majority class": 50.5, "bag of words": 65.0, best: 65.0}
    assert "MNLI-mm" not in found
    floors["data/glue/QNLI"]["valid"]["shared words"] = {"accuracy": 72.0}
    floors["data/glue/QQP"]["valid"]["bag of words"] = {"accuracy": 40.0}
    found = EXPERIMENTS["lrpe_glue"].baselines(
        DataDescription.model_validate({"floors": floors}), "mini"
    )
    assert found["average"]["bag of words"] == 60.0
    assert best_baseline(TABLE_3.columns[-1], found) == (best, (72.0 + 50.0 + 60.0 + 80.0) / 4)


def test_rows_are_judged_over_examples_where_a_column_is_a_share_of_them(make_result):
    """Of 1,000 examples 57 per cent are more than 50 by chance, 52 are not."""
    results = []
    for row, value in (("base", 57.0), ("rope", 52.0)):
        result = make_result(row, "linear", 1, 80.0, table="table3")
        results.append({**result, "metrics": {"QNLI": value, "average": value}})
    floors = {"QNLI": {"majority class": 50.0, "bag of words": 56.0}, "average": {"other": 50.0}}
    cells = gather(results, TABLE_3.columns)
    (section,) = baselines_section(JudgedTable(TABLE_3, cells, floors, {"QNLI": 1000}))
    page = section.text
    assert "| linear: rows that beat | QNLI |" in page
    assert "| majority class | 1 of 2 |" in page and "| bag of words | 0 of 2 |" in page
    (section,) = baselines_section(JudgedTable(TABLE_3, cells, floors, {}))
    assert "rows that beat |" not in section.text


def test_only_accuracies_are_shares_of_examples():
    sizes = {
        f"data/glue/{name}": {"train": {"examples": 9}, "valid": {"examples": count}}
        for name, count in (("QNLI", 1000), ("CoLA", 500), ("MNLI", 700))
    }
    data = DataDescription.model_validate({"splits": sizes})
    assert EXPERIMENTS["bert_glue"].examples(data, "mini") == {"QNLI": 1000, "MNLI": 700}
    assert EXPERIMENTS["lrpe_glue"].examples(data, "mini") == {"QNLI": 1000, "MNLI-m": 700}


def test_floors_and_examples_are_of_the_part_that_a_scale_measures():
    """MNLI's mismatched development set is measured at scale paper alone, wherever it is."""
    floors = {
        subset: {"majority class": {"accuracy": value}}
        for subset, value in (("valid", 36.0), ("valid1", 33.0))
    }
    sizes = {"valid": {"examples": 500}, "valid1": {"examples": 900}}
    data = DataDescription.model_validate(
        {"floors": {"data/glue/MNLI": floors}, "splits": {"data/glue/MNLI": sizes}}
    )
    bert, lrpe = EXPERIMENTS["bert_glue"], EXPERIMENTS["lrpe_glue"]
    assert bert.baselines(data, "small")["MNLI"] == {"majority class": 36.0}
    assert bert.baselines(data, "paper")["MNLI"] == {"majority class": 33.0}
    assert [bert.examples(data, scale)["MNLI"] for scale in ("small", "paper")] == [500, 900]
    assert "MNLI-mm" not in lrpe.baselines(data, "small") | lrpe.examples(data, "small")
    assert lrpe.baselines(data, "paper")["MNLI-mm"] == {"majority class": 33.0}


def test_answering_nothing_is_the_floor_of_squad_with_unanswerable_questions():
    data = DataDescription.model_validate(
        {
            "request": {"v1": {"version": "1.1"}, "v2": {"version": "2.0"}},
            "splits": {"v2": {"valid": {"questions": 7, "answers": {"questions": 3}}}},
        }
    )
    floors = EXPERIMENTS[BERT_SQUAD_TABLE.experiment].baselines(data, "mini")
    assert floors == {m: {"answers nothing": 57.1429} for m in ("v2_f1", "v2_exact")}


def test_floors_of_squad_are_of_both_versions():
    answers = {"the whole text": {"exact": 0.0, "f1": 7.0}}
    data = DataDescription.model_validate(
        {
            "request": {"a": {"version": "1.1"}, "b": {"version": "2.0"}, "text": {"merges": 9}},
            "splits": {"b": {"valid": {"questions": 4, "answers": {"questions": 3}}}},
            "floors": {
                "a": {"valid": answers},
                "b": {"valid": {"the whole text": {"exact": 0.0, "f1": 5.0}}},
                "text": {"valid": {"unigram": {"ppl": 300.0}}},
            },
        }
    )
    floors = EXPERIMENTS[BERT_SQUAD_TABLE.experiment].baselines(data, "mini")
    assert floors["v1_f1"] == {"the whole text": 7.0} and floors["v1_exact"]["the whole text"] == 0
    assert floors["v2_f1"] == {"answers nothing": 25.0, "the whole text": 5.0}


@pytest.mark.parametrize("floors", [{"valid": {"unigram": "low"}}, {"valid": {"unigram": []}}, 3.0])
def test_damaged_floors_are_refused_with_the_result(floors):
    with pytest.raises(ValueError, match="loors"):
        DataDescription.model_validate({"floors": floors})
