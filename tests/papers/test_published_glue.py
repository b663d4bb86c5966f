"""The papers' GLUE tables: their averages follow from their cells, and own rows are summed up."""

from pathlib import Path

import pytest

from fairseq_plugins.papers.glue import BERT_TABLE_3, LRPE_TABLE_3, summarise

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("table", [LRPE_TABLE_3, BERT_TABLE_3], ids=lambda t: t.name)
def test_printed_averages_follow_from_the_cells(table):
    last_digit = 0.01 if table is LRPE_TABLE_3 else 0.1
    for row in table.rows:
        assert len(row.cells) == len(table.columns)
        assert (CONFIGS / "model" / f"{row.name}.yaml").is_file()
        if (row.name, row.attention) == ("base", "linear"):
            continue
        assert abs(table.averages(row)["averaged"] - row.average) <= last_digit / 2 + 1e-9, row.name


def test_base_linear_is_averaged_over_five_columns_in_print():
    row = LRPE_TABLE_3.row("base", "linear")
    averages = LRPE_TABLE_3.averages(row)
    assert row.average == round(averages["all"], 2) == 81.65
    assert averages["averaged"] == pytest.approx(83.225)


def test_own_rows():
    metrics = {
        "MNLI": {"valid": {"accuracy": 60.0}},
        "WNLI": {"valid": {"accuracy": 1.0}},
        "CoLA": {"valid": {"matthews": 20.0, "accuracy": 70.0}},
    }
    bert = summarise(BERT_TABLE_3, metrics)
    assert bert.cells["CoLA"] == 20 and bert.cells["MNLI"] == 60 and bert.cells["WNLI"] == 1
    assert bert.cells["RTE"] is None
    assert bert.average == 40 and bert.averaged == ("CoLA", "MNLI") and bert.replaced == ("MNLI",)
    assert not bert.is_complete(BERT_TABLE_3)
    lrpe = summarise(LRPE_TABLE_3, metrics)
    assert lrpe.cells["MNLI-m"] == 60 and lrpe.cells["MNLI-mm"] is None and lrpe.average == 60
    assert summarise(LRPE_TABLE_3, {}).average is None


def test_a_complete_row_and_the_mismatched_column():
    metrics = {
        task: {"valid": {"accuracy": 50.0}, "valid1": {"accuracy": 10.0}}
        for task in ("MNLI", "QNLI", "QQP", "SST-2")
    }
    summary = summarise(LRPE_TABLE_3, metrics)
    assert summary.is_complete(LRPE_TABLE_3)
    assert summary.cells["MNLI-mm"] == 10 and summary.average == 50
    assert summarise(BERT_TABLE_3, metrics).cells["MNLI"] == 10
