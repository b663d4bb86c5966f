"""A table's page and the site's comparison have one verdict for every two rows."""

from pathlib import Path

import pytest

from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.report.differences import orderings
from fairseq_plugins.site.compare import pairs_of
from fairseq_plugins.statistics.judged import BETTER, TIE, WORSE
from fairseq_plugins.statistics.table_results import TableResults

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = [
    (name, scale)
    for name in TABLES
    for scale in ("mini", PUBLISHED)
    if any((RESULTS / name / scale).glob("*.json"))
]
WORDS = {"holds": BETTER, "tie": TIE, "reversed": WORSE}


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
            rows, pairs = site[attention]["rows"], site[attention]["pairs"]
            names = {labels[better], labels[worse]}
            (pair,) = (one for one in pairs if {rows[one[0]], rows[one[1]]} == names)
            *_, p, _, word = pair
            if rows[pair[0]] != labels[better]:
                word = {BETTER: WORSE, WORSE: BETTER}.get(word, word)
            assert (WORDS[cells[5]], cells[4]) == (word, p), line
            # As static/compare.js shows them, with either sign.
            shown = sorted(f"{abs(n):.{digits}f}" for n in pair[2:5] if n is not None)
            page = [cells[2], *cells[3].split(" to ")] if pair[3] is not None else [cells[2]]
            assert shown == sorted(number.lstrip("+-") for number in page), line
