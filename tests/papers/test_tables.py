"""The papers' numbers hang together: losses with perplexities, averages with columns, rows with
each other; and the notation they are written in refuses what it cannot read."""

from pathlib import Path
from statistics import fmean

import pytest
from scipy import stats

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert import (
    BERT_CONTINUED_TABLE,
    BERT_GLUE_TABLE,
    BERT_PROPERTIES_TABLE,
    BERT_SQUAD_TABLE,
)
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_8
from fairseq_plugins.papers.tables import ATTENTIONS, AVERAGE, Column, Printed, read_rows

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PRINTED = [table for table in TABLES.values() if table.is_printed]
TYPES = [f"lrpe_type{number}" for number in range(1, 9)]


def cells(table):
    """(row name, attention, mean by metric) of every cell that the paper prints."""
    return [
        (row.name, attention, {metric: number.mean for metric, number in numbers.items()})
        for row in table.rows
        for attention, numbers in row.paper.items()
    ]


def best(table, attention, metric, rows):
    """Of these rows the one with the lowest number."""
    return min(rows, key=lambda name: table.row(name).paper[attention][metric].mean)


@pytest.mark.parametrize("table", PRINTED, ids=lambda table: table.name)
def test_every_cell_is_whole_and_every_row_can_be_trained(table):
    names = [column.metric for column in table.printed_columns]
    for row in table.rows:
        assert (CONFIGS / "model" / f"{row.name}.yaml").is_file()
        assert set(row.paper) <= set(ATTENTIONS) and row.paper
        for numbers in row.paper.values():
            assert list(numbers) == names
    assert len(set(table.row_names)) == len(table.rows)


@pytest.mark.parametrize("table", PRINTED, ids=lambda table: table.name)
def test_deviations_are_all_there_or_none_and_not_negative(table):
    for column in table.printed_columns:
        found = [n[column.metric].deviation for row in table.rows for n in row.paper.values()]
        assert len({deviation is None for deviation in found}) == 1
        assert all(deviation is None or deviation >= 0 for deviation in found)


def test_what_is_measured_beyond_the_printed_columns_is_table_4s_loss():
    """Which its caption names and its columns do not have."""
    beyond = {
        (table.name, column.metric)
        for table in PRINTED
        for column in set(table.columns) - set(table.printed_columns)
    }
    assert beyond == {("table4", "valid_loss")}


def test_the_papers_marks_are_what_five_runs_say():
    """Welch's test of the printed means and deviations agrees with the BERT paper's daggers in all
    cells but three, in which p is next to 0.05."""
    reference = BERT_SQUAD_TABLE.row("learned").paper["vanilla"]
    assert not any(number.is_marked for number in reference.values())
    doubtful = set()
    for row in BERT_SQUAD_TABLE.rows:
        for metric, number in row.paper["vanilla"].items():
            own, other = ((n.mean, n.deviation, 5) for n in (number, reference[metric]))
            p = stats.ttest_ind_from_stats(*own, *other, equal_var=False).pvalue
            if number.is_marked != (p < 0.05 and own[0] > other[0]):
                assert p == pytest.approx(0.05, abs=0.03)
                doubtful.add((row.name, metric))
    assert doubtful == {
        ("learnable_sinusoidal", "v2_f1"),
        ("learnable_sinusoidal", "v2_exact"),
        ("learned_learnable_sinusoidal_rpe", "v1_exact"),
    }
    elsewhere = [table for table in PRINTED if table is not BERT_SQUAD_TABLE]
    assert not any(
        number.is_marked
        for table in elsewhere
        for row in table.rows
        for numbers in row.paper.values()
        for number in numbers.values()
    )


def test_the_papers_have_as_many_rows_as_they_name():
    """LRPE: eight types among its competitors; the BERT paper: none, three absolute and three
    relative embeddings, and their combinations but those of a sinusoidal absolute one."""
    counts = {table.name: len(table.rows) for table in PRINTED}
    assert counts == {
        **{"table2": 14, "table3": 7, "table4": 13, "table5": 3, "table8": 13},
        **{"bert_table2": 13, "bert_table3": 13, "bert_table4": 13},
    }
    for table in (TABLE_2, TABLE_4, TABLE_8):
        assert [name for name in table.row_names if name in TYPES] == TYPES
        assert [row.group for row in table.rows if row.name in TYPES] == [
            *["Householder"] * 4,
            *["Permutation"] * 3,
            "FFT",
        ]
    for table in (BERT_CONTINUED_TABLE, BERT_PROPERTIES_TABLE, BERT_GLUE_TABLE):
        assert table.row_names == BERT_SQUAD_TABLE.row_names
    relative = ("shaw", "sinusoidal_rpe", "learnable_sinusoidal_rpe")
    assert set(BERT_SQUAD_TABLE.row_names) == {
        *("none", "learned", "sinusoidal", "learnable_sinusoidal"),
        *(f"{name}_only" for name in relative),
        *(f"{first}_{name}" for first in ("learned", "learnable_sinusoidal") for name in relative),
    }


def test_what_linear_attention_cannot_have_is_a_dash():
    """Whatever is added to the logits of pairs of tokens."""
    without = {
        table.name: {row.name for row in table.rows if "linear" not in row.paper}
        for table in (TABLE_2, TABLE_3, TABLE_4, TABLE_8)
    }
    assert without["table2"] == {"t5", "xl"}
    assert all("t5" in names for names in without.values())


def test_a_perplexity_is_two_to_the_loss_beside_it():
    for name, attention, numbers in cells(TABLE_8):
        low, high = (2 ** (numbers["valid_loss"] + half) for half in (-0.005, 0.005))
        assert low - 0.005 <= numbers["valid_ppl"] <= high + 0.005, (name, attention)


@pytest.mark.parametrize(("table", "unit"), [(TABLE_3, 0.01), (BERT_GLUE_TABLE, 0.1)])
def test_averages_follow_from_their_columns(table, unit):
    for name, attention, numbers in cells(table):
        average = fmean(numbers[metric] for metric in table.average_of)
        if (table.name, name, attention) == ("table3", "base", "linear"):
            # The one row whose average counts MNLI mismatched too.
            assert average == pytest.approx(83.225)
            average = fmean(n for metric, n in numbers.items() if metric != AVERAGE)
        assert abs(average - numbers[AVERAGE]) <= unit / 2 + 1e-9, (name, attention)


def test_table_5_repeats_rows_of_table_2():
    for name in ("lrpe_type2", "lrpe_type6"):
        assert TABLE_5.row(name).paper == TABLE_2.row(name).paper
    for attention in ATTENTIONS:
        assert best(TABLE_5, attention, "test_ppl", TABLE_5.row_names) == "lrpe_type2"


def test_orders_within_the_tables_of_lrpe():
    """Type 2 is the best language model on the validation set under both attentions, and all
    types but 4 and 7 are better than Base and RoPE under vanilla attention."""
    for attention in ATTENTIONS:
        rows = [row.name for row in TABLE_2.rows if attention in row.paper]
        assert best(TABLE_2, attention, "valid_ppl", rows) == "lrpe_type2"
    perplexity = {row.name: row.paper["vanilla"]["test_ppl"].mean for row in TABLE_2.rows}
    better = {
        name for name in TYPES if perplexity[name] < min(perplexity[n] for n in ("base", "rope"))
    }
    assert better == set(TYPES) - {"lrpe_type4", "lrpe_type7"}
    for name, attention, numbers in cells(TABLE_2):
        assert (numbers["test_ppl"] < numbers["valid_ppl"]) == (name != "xl"), (name, attention)
    for *_, numbers in cells(TABLE_4):
        assert numbers["valid_bleu"] > numbers["test_bleu"] > 25
    for row in TABLE_8.rows:
        losses = [row.paper[a]["valid_loss"].mean for a in ATTENTIONS if a in row.paper]
        assert losses == sorted(losses, reverse=True)  # vanilla attention is better everywhere


def test_scores_of_squad_are_percentages_in_their_order():
    """F1 is at least exact match, and v2.0 with its unanswerable questions is harder for every
    model but one that answers nothing."""
    for name, _, numbers in cells(BERT_SQUAD_TABLE):
        assert 0 < numbers["v1_exact"] < numbers["v1_f1"] < 100
        assert 0 < numbers["v2_exact"] < numbers["v2_f1"] < 100
        assert (numbers["v2_f1"] < numbers["v1_f1"]) == (name != "none")
    without = BERT_SQUAD_TABLE.row("none").paper["vanilla"]
    for column in BERT_SQUAD_TABLE.columns:
        for row in BERT_SQUAD_TABLE.rows[1:]:
            assert row.paper["vanilla"][column.metric].mean > without[column.metric].mean + 20


def test_properties_of_attention_are_shares_and_directions_lean_backwards():
    for _, _, numbers in cells(BERT_PROPERTIES_TABLE):
        balance = numbers.pop("direction_balance")
        assert all(0 <= number <= 1 for number in numbers.values())
        assert numbers["monotonicity_20"] < numbers["monotonicity"]
        assert balance > 1


def test_a_row_without_published_numbers_has_a_name():
    assert (TABLE_2.row("none").label, dict(TABLE_2.row("none").paper)) == ("none", {})


COLUMNS = (Column("loss", "loss"), Column("ppl", "PPL"))
LABELS = {"base": "Base", "rope": "RoPE"}


def test_the_notation_has_groups_dashes_and_deviations():
    base, rope = read_rows(
        """
        base  1.00 2.00  3.00±0.1 4.00

        Others:
        rope  -    -     1.50     -
        """,
        COLUMNS,
        LABELS,
    )
    assert (base.label, base.group, rope.label, rope.group) == ("Base", "", "RoPE", "Others")
    assert base.paper["vanilla"]["loss"] == Printed(3.0, 0.1)
    assert base.paper["vanilla"]["loss"].text(2) == "3.00 ± 0.10"
    assert base.paper["linear"]["ppl"].text(4) == "2.0000"
    assert rope.paper == {"vanilla": {"loss": Printed(1.5)}}


@pytest.mark.parametrize("line", ["base 1.00", "base 1 2 3 4 5", "base 1.00 x 3 4"])
def test_a_line_that_is_no_row_is_refused(line):
    with pytest.raises(ValueError):  # noqa: PT011
        read_rows(line, COLUMNS, LABELS)
