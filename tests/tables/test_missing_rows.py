"""A page says why the paper's rows have no number: impossible, or not run."""

import re

from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_3
from fairseq_plugins.papers.tables import without_paper
from fairseq_plugins.report.render import render
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.table_results import missing_rows

NEVER = "needs the T x S logits, which linear attention never computes."


def all_but(make_result, table, *absent):
    return [
        make_result(row.name, attention, 1, 80.0, table=table.name)
        for row in table.rows
        for attention in table.attentions
        if (row.name, attention) not in absent
    ]


def test_what_cannot_be_says_why_and_what_was_not_run_whether_the_paper_has_it(
    configs, make_result
):
    gone = [("t5", "linear"), ("xl", "linear"), ("rope", "linear"), ("per", "vanilla")]
    found = missing_rows(configs, TABLE_2, "mini", all_but(make_result, TABLE_2, *gone))
    assert found == [
        "No number here for `rope` under linear attention; `per` under vanilla attention: not run.",
        f"No number here for `t5` under linear attention: its hook `attn_bias` {NEVER}",
        f"No number here for `xl` under linear attention: its hook `relative_logits` {NEVER}",
    ]
    gone = [("t5", "linear"), ("lrpe_type1", "linear"), ("per", "vanilla"), ("base", "vanilla")]
    found = missing_rows(configs, TABLE_3, "mini", all_but(make_result, TABLE_3, *gone))
    assert found[-2:] == [
        "No number here for `lrpe_type1` under linear attention; `per` under vanilla attention: "
        "not in the paper and not run.",
        "No number here for `base` under vanilla attention: not run.",
    ]


def test_every_row_of_the_paper_has_a_number_or_a_reason(configs, make_result):
    """Each under each attention, once."""
    told = missing_rows(configs, TABLE_2, "mini", [])
    rows = [row for text in told for row in re.findall(r"`(\w+)`", text.partition(":")[0])]
    assert sorted(rows) == sorted(2 * TABLE_2.row_names)
    assert missing_rows(configs, TABLE_2, "mini", all_but(make_result, TABLE_2)) == []
    assert missing_rows(configs, without_paper(TABLE_2), "mini", []) == []


def test_the_page_has_these_sentences(root, make_result):
    shown = [make_result("base", "linear", 1, 80.0)]
    absent = missing_rows(root / "configs", TABLE_2, "mini", shown)
    page = render(JudgedTable.of(TABLE_2, shown), "mini", [], None, absent).markdown()
    assert f"- No number here for `t5` under linear attention: its hook `attn_bias` {NEVER}" in page
    assert "is not run" not in page
