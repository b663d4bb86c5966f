"""Pages and the site's comparison have one verdict for every two rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_4
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.report.differences import orderings
from fairseq_plugins.site.compare import pairs_of
from fairseq_plugins.statistics.judged import BETTER, ONE_SEED, TIE, WORSE, JudgedTable
from fairseq_plugins.statistics.table_results import TableResults

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = [
    (name, scale)
    for name in TABLES
    for scale in ("mini", PUBLISHED)
    if any((RESULTS / name / scale).glob("*.json"))
]
WORDS = {"holds": BETTER, "tie": TIE, "reversed": WORSE}
OPPOSITE = {BETTER: WORSE, WORSE: BETTER}


def pair_on_site(found: Mapping[str, Any], first: str, second: str) -> tuple[Any, ...]:
    """Return the numbers of a pair of rows on the site, with the verdict on the first."""
    rows = found["rows"]
    (pair,) = (one for one in found["pairs"] if {rows[i] for i in one[:2]} == {first, second})
    word = pair[-1] if rows[pair[0]] == first else OPPOSITE.get(pair[-1], pair[-1])
    return *pair[2:-1], word


@pytest.mark.parametrize(("name", "scale"), COMMITTED)
def test_page_and_site_agree_on_all_committed_results(name: str, scale: str) -> None:
    table = TABLES[name].at(scale)
    runs = [read_content(path) for path in (RESULTS / name / scale).glob("*.json")]
    found = TableResults(table, scale, runs, [])
    site = pairs_of(found)
    labels = {row.label: row.name for row in table.rows}
    digits = table.ranked_by.digits
    sign = " > " if table.ranked_by.higher_is_better else " < "
    parts = (part for section in orderings(found.judged) for part in section.parts)
    sections = {part.partition(":")[0]: part for part in parts}
    assert all(one["name"] == table.word_of(attention) for attention, one in site.items())
    for attention in table.attentions:
        section = sections.get(f"**{table.name_of(attention).capitalize()}**", "")
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            better, is_pair, worse = cells[0].partition(sign)
            if not is_pair or better not in labels:
                continue
            *shown, p, seeds, word = pair_on_site(site[attention], labels[better], labels[worse])
            on_page = (WORDS[cells[6]], cells[5], cells[2])
            assert on_page == (word, p, str(seeds or "-")), line
            # As static/compare.js shows them, with either sign.
            numbers = sorted(f"{abs(n):.{digits}f}" for n in shown if n is not None)
            page = [cells[3], *cells[4].split(" to ")] if shown[1] is not None else [cells[3]]
            assert numbers == sorted(number.lstrip("+-") for number in page), line
        for word, rows in found.judged.against_none(attention).items():
            words = {row: pair_on_site(site[attention], row, "none")[-1] for row in rows}
            assert {*words.values()} <= {word, *([ONE_SEED] if word == TIE else [])}, words


def test_the_reference_has_one_verdict_against_none() -> None:
    shifted = {row: {1: 90.8, 2: 91.0, 3: 91.2} for row in ("none", "shaw", "t5_only", "cnn")}
    rows = {"base": dict.fromkeys((1, 2, 3), 90.0), **shifted}
    judged = JudgedTable(TABLE_2, {(row, "linear"): {"test_ppl": rows[row]} for row in rows})
    assert not judged.against("linear")["none"].is_significant
    assert "base" in judged.against_none("linear")["tie"]


def test_a_row_is_beaten_by_one_of_equal_printed_number() -> None:
    """LRPE prints a test BLEU of 26.13 for both types under linear attention."""
    rows = {"lrpe_type5": (20.0, 20.1, 20.3), "lrpe_type6": (25.0, 25.1, 25.3)}
    cells = {
        (row, "linear"): {"test_bleu": dict(enumerate(values, 1))} for row, values in rows.items()
    }
    cells["lrpe_type6", "linear"]["test_bleu"][2] += 0.01
    judged = JudgedTable(TABLE_4, cells)
    assert judged.agreement("linear").pairs == ()
    assert judged.unbeaten("linear") == ("lrpe_type6",)
