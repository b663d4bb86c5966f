"""The page of a table: every number in it is computed from the results."""

import pytest

from fairseq_plugins.common.files import write_json
from fairseq_plugins.experiments import EXPERIMENTS, experiment_of
from fairseq_plugins.papers.bert import BERT_SQUAD_TABLE
from fairseq_plugins.papers.lrpe import PERPLEXITIES, TABLE_2, TABLE_4, TABLE_5
from fairseq_plugins.records.runs import Study
from fairseq_plugins.report.differences import marks, probability
from fairseq_plugins.report.lines import cell_text, lines_of
from fairseq_plugins.report.page import Report
from fairseq_plugins.report.pairwise_runs import compare
from fairseq_plugins.report.render import main_tables, render
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.judged import JudgedTable


@pytest.fixture
def results(make_result):
    return [
        *(make_result("base", "linear", s, 90.0 + s, valid=80.0 + s) for s in (1, 2, 3)),
        *(make_result("rope", "linear", s, 85.0 + s) for s in (1, 2, 3)),
        make_result("lrpe_type2", "linear", 1, 86.5),
        make_result("none", "linear", 1, 120.0),
        make_result("sinusoidal", "linear", 1, 125.0),
        make_result("base", "vanilla", 1, 70.0),
        make_result("t5", "vanilla", 1, 69.0),
    ]


def row_of(page, label):
    (line,) = [line for line in page.splitlines() if f"| {label} " in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_cells_are_mean_deviation_and_seeds():
    assert cell_text(None) == "-"
    assert cell_text({1: 80.123}) == "80.12 (1)"
    assert cell_text({1: 80.0, 2: 81.0, 3: 82.0}) == "81.00 ± 1.00 (3)"


def test_main_table_has_paper_ours_and_difference(results):
    page = render(JudgedTable.of(TABLE_2, results), "mini").markdown()
    base = row_of(page, "Base (`base`)")
    assert base[2:7] == ["33.94", "33.74", "82.00 ± 1.00 (3)", "92.00 ± 1.00 (3)", "+58.26"]
    assert base[7:] == ["30.82", "29.78", "70.00 (1)", "70.00 (1)", "+40.22"]
    assert row_of(page, "T5 (`t5`)")[2:7] == ["-"] * 5
    assert row_of(page, "SPE (`spe`)")[2:] == [
        *("43.50", "41.91", "-", "-", "-", "32.99", "32.26", "-", "-", "-")
    ]
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    labels = [cells[2].strip() for cells in rows if "(`" in cells[2]]
    assert labels == [f"{row.label} (`{row.name}`)" for row in TABLE_2.rows]


def test_the_page_says_how_many_seeds_rows_have(make_result, results):
    page = render(JudgedTable.of(TABLE_2, results), "mini")
    assert page.caption.endswith("1 to 3 seeds of each row.")
    assert "(`-`) are tested by the standard deviation between seeds pooled" in page.markdown()
    paired = [make_result("rope", "linear", s, 85.0 + s * s) for s in (1, 2, 3)]
    page = render(JudgedTable.of(TABLE_2, [*results[:3], *paired]), "mini")
    assert page.caption.endswith("seeds 1 to 3.")
    assert "pooled over all rows" not in page.markdown()


def test_a_column_that_the_paper_does_not_print_is_ours_alone():
    header = main_tables(JudgedTable(TABLE_4, {}), {})[0].splitlines()[0]
    assert header.count("ours loss (valid)") == 2 and "paper loss" not in header


def test_rows_beyond_the_paper_have_a_table_of_their_own(results):
    page = render(JudgedTable.of(TABLE_2, results), "mini").markdown()
    beyond = page[page.index("## Rows beyond the paper") :]
    assert row_of(beyond, "`none`")[1:] == ["120.00 (1)†", "120.00 (1)†"]
    assert beyond.index("`none`") < beyond.index("`sinusoidal`")


def test_caption_says_how_much_data_each_corpus_has(make_result):
    pairs = {"corpus": "pairs", "source": "en", "target": "de"}
    parts = {
        "text": ({"corpus": "novels", "merges": 300}, {"train": {"words": 2000}}),
        "task": (
            {"corpus": "glue/RTE"},
            {"train": {"examples": 640}, "valid": {"examples": 277}},
        ),
        "squad": (
            {"corpus": "squad"},
            {"train": {"questions": 8309}, "valid": {"questions": 2910}},
        ),
        "mt": (pairs, {"train": {"en": {"lines": 28038}, "de": {"lines": 28038}}}),
    }
    data = {
        "request": {name: request for name, (request, _) in parts.items()},
        "splits": {name: splits for name, (_, splits) in parts.items()},
    }
    page = render(
        JudgedTable.of(TABLE_2, [make_result("rope", "linear", 1, 85.0, data=data)]), "mini"
    ).markdown()
    for fact in (
        "Data: novels (2,000 BPE tokens of 300 merges to train on), ",
        "glue/RTE (640 examples to train on, 277 to test), ",
        "squad (8,309 questions to train on, 2,910 to test), ",
        "pairs (28,038 pairs to train on).",
    ):
        assert fact in page


def test_caption_says_the_scale_of_everything(results):
    page = render(
        JudgedTable.of(TABLE_2, results), "mini", ["`x`, made by another experiment."]
    ).markdown()
    for fact in (
        "wikitext-2 (2,051,910 words to train on)",
        "Perplexities are per token of the data",
        "4 decoder layers of 128 features, 4 heads, feed-forward 512",
        "1.82 million parameters with a dictionary of 8,000 symbols",
        "900 updates of 4,096 tokens",
        "seeds 1 / 2 / 3",
        "2 cores of A CPU",
        "torch 2.13.0",
        "far smaller than the paper's",
        "Left out: `x`, made by another experiment.",
    ):
        assert fact in page


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("table2", "LRPE's Table 7"),
        ("table3", "LRPE's Table 7"),
        ("table8", "LRPE's Table 7"),
        ("bert_start", "LRPE's Table 7"),
        ("bert_continued", "the BERT paper's Table 6"),
        ("bert_table2", "the BERT paper's Table 6"),
        ("bert_table3", "the BERT paper's Table 6"),
        ("bert_table4", "the BERT paper's Table 6"),
        ("bert_figure7", "the BERT paper's Table 6"),
    ],
)
def test_a_page_names_the_settings_of_its_own_paper(table, settings):
    told = experiment_of(table).comparability("mini")
    assert f"All rows differ from the settings in {settings} in the same way." in told


def test_a_table_of_no_paper_differs_from_none():
    assert "settings in" not in experiment_of("floor_sweep").comparability("mini")


def test_a_difference_that_rounds_to_nothing_has_no_minus(make_result):
    made = [make_result("base", "linear", s, 90.0 + s) for s in (1, 2, 3)]
    made += [make_result("rope", "linear", s, 90.0 + s - 0.001 * s) for s in (1, 2, 3)]
    judged = JudgedTable.of(TABLE_2, made)
    page = render(judged, "mini", study=Study("mine")).markdown()
    assert "| RoPE | 3 | +0.00 |" in page and "| 0.61 | 3 | +0.00 |" in page
    assert lines_of(judged)["rope", "linear"].effect == "+0.00"
    pairs = compare(["base", "rope"], "linear", TABLE_2, made).text()
    assert "+0.00" in pairs and "-0.00 " not in pairs.replace("-0.00 to", "")


def test_seeds_of_different_code_in_one_mean_are_named(make_result):
    made = [make_result("base", "linear", seed, 90.0) for seed in (1, 2)]
    made += [make_result("rope", "linear", seed, 90.0) for seed in (1, 2)]
    made[0]["sources"], made[1]["sources"] = "a" * 16, "b" * 16
    judged = JudgedTable.of(TABLE_2, made)
    told = "Different code made the seeds of `base` under linear attention"
    assert told not in render(judged, "mini").markdown(), "the commits tell"
    page = render(judged, "mini", study=Study("mine")).markdown()
    assert told in page.split("## ")[0] and page.count("Different code") == 1
    made[1]["commit"] += "-dirty"
    assert told in render(judged, "mini").markdown()


def test_caption_says_which_commits_made_the_runs(make_result):
    made = [make_result("base", "linear", seed, 90.0) for seed in (1, 2, 3)]
    made[0] |= {"commit": "b" * 40, "finished_at": "2026-02-01T00:00:00+00:00"}
    made[1] |= {"commit": f"{'a' * 40}-dirty", "finished_at": "2026-01-01T00:00:00+00:00"}
    made[2] |= {"commit": "release 0.1.0", "finished_at": "2026-03-01T00:00:00+00:00"}
    told = "`aaaaaaaa-dirty` 1, `bbbbbbbb` 1, `release 0.1.0` 1."
    page = render(JudgedTable.of(TABLE_2, made), "mini").markdown()
    assert f"Runs per commit: {told}" in page
    assert "counts at each of its commits" not in page
    made[2]["earlier"] = [made[1] | {"commit": "c" * 40}]
    page = render(JudgedTable.of(TABLE_2, made), "mini").markdown()
    told = told.replace("`bbb", "`cccccccc` 1, `bbb")
    assert f"{told} A run that was completed at a later commit counts" in page


def test_orders_are_compared_pair_by_pair(results):
    judged = JudgedTable(TABLE_2, gather(results, PERPLEXITIES))
    agreement = judged.agreement("linear")
    assert agreement.ranking == ("lrpe_type2", "rope", "base")  # by the paper's test perplexity
    found = {(p.better, p.worse): p for p in agreement.pairs}
    assert len(found) == 3
    assert found["rope", "base"].holds
    assert found["rope", "base"].paper_gap == pytest.approx(0.61)
    assert found["rope", "base"].gap.effect == pytest.approx(5.0)
    # type 2 has one seed: RoPE's one of it is compared, by the spread of the other rows.
    two = found["lrpe_type2", "rope"]
    assert two.gap.effect == pytest.approx(-0.5)
    assert two.holds is None
    assert (agreement.count(True), agreement.count(False), agreement.count(None)) == (2, 0, 1)
    assert judged.unbeaten("linear") == ("lrpe_type2", "rope")


def test_rows_that_share_seeds_are_compared_seed_by_seed(make_result):
    """What a seed does to both rows is no spread of their difference."""
    noise = {1: 0.0, 2: 20.0, 3: -20.0}
    rows = [make_result("base", "linear", s, 100 + n) for s, n in noise.items()]
    rows += [make_result("rope", "linear", s, 99 + n + s / 10) for s, n in noise.items()]
    (pair,) = JudgedTable(TABLE_2, gather(rows, PERPLEXITIES)).agreement("linear").pairs
    assert pair.holds
    assert (pair.gap.effect, pair.gap.seeds) == (pytest.approx(0.8), 3)
    page = render(JudgedTable.of(TABLE_2, rows), "mini").markdown()
    assert row_of(page, "RoPE (`rope`)")[5] == "99.20 ± 19.95 (3)†"
    differences = page.partition("## Differences from `base`")[2].partition("\n## ")[0]
    assert row_of(differences, "RoPE")[1:] == ["3", "-0.80†", "-1.05 to -0.55", "0.005"]
    assert (
        "(pooled over rows, 4 degrees of freedom; from 19.95 for `rope` to 20.00 for `base`)"
        in differences
    )


def test_a_reference_that_varies_more_than_the_rest_is_said_to(make_result):
    """Rows of one seed are then judged by a spread that is too small."""
    rows = [make_result("base", "linear", s, 100 + n) for s, n in ((1, 0), (2, 9), (3, -9))]
    for i, name in enumerate(("rope", "spe", "per")):
        rows += [make_result(name, "linear", s, 70 + i + s / 10) for s in (1, 2, 3)]
    said = (
        "`base` varies more than the pooled deviation says: for rows with fewer than three seeds p"
    )
    assert said not in render(JudgedTable.of(TABLE_2, rows), "mini").markdown()
    rows.append(make_result("lrpe_type1", "linear", 1, 80.0))
    page = render(JudgedTable.of(TABLE_2, rows), "mini").markdown()
    assert said in page.partition("## Differences from `base`")[2].partition("\n## ")[0]


def test_a_reversed_order_is_told_as_such(make_result):
    rows = [make_result("base", "vanilla", s, 60.0 + s / 10) for s in (1, 2, 3)]
    rows += [make_result("rope", "vanilla", s, 61.0 + s / 9) for s in (1, 2, 3)]
    judged = JudgedTable(TABLE_2, gather(rows, PERPLEXITIES))
    counts = [judged.agreement("vanilla").count(holds) for holds in (True, False, None)]
    assert counts == [0, 1, 0]
    assert judged.unbeaten("vanilla") == ("base",)
    page = render(JudgedTable.of(TABLE_2, rows), "mini").markdown()
    assert "1 pairs of rows: the paper's order holds in 0 and is reversed in 1; 0 tie." in page
    assert row_of(page, "RoPE < Base")[-1] == "reversed"


def test_ties_are_told_as_ties(make_result):
    """Rows whose seeds differ more than they do are in no order."""
    rows = [make_result("base", "vanilla", s, 60.0 + s) for s in (1, 2, 3)]
    rows += [make_result("rope", "vanilla", s, 61.5 - s / 2) for s in (1, 2, 3)]
    page = render(
        JudgedTable.of(TABLE_2, [*rows, make_result("none", "vanilla", 1, 61.0)]), "mini"
    ).markdown()
    assert row_of(page, "RoPE < Base")[-1] == "tie"
    assert "the paper's order holds in 0 and is reversed in 0; 1 tie." in page
    assert "0 of 2 rows are significantly better; ties: `base`, `rope`." in page
    assert "as better than" not in page and "†" not in page.partition("\n- *Paper*")[0]


def test_the_orderings_section_tells_what_can_be_told_apart(results):
    page = render(JudgedTable.of(TABLE_2, results), "mini").markdown()
    assert "3 pairs of rows: the paper's order holds in 2 and is reversed in 0; 1 tie." in page
    assert (
        "Rows of the paper that no other of its rows significantly beats: `lrpe_type2`, `rope`."
        in page
    )
    assert row_of(page, "Type2 < RoPE")[1:4] == ["0.33", "-", "-0.50"]
    assert row_of(page, "Type2 < RoPE")[-1] == "tie"
    assert "**Vanilla attention**: no row has several seeds" in page
    assert "3 of 4 rows are significantly better; worse: `sinusoidal`" in page


def test_without_seeds_no_order_is_claimed(make_result):
    rows = [make_result("base", a, 1, 90.0) for a in ("linear", "vanilla")]
    rows += [make_result("rope", "vanilla", 1, 10.0), make_result("none", "vanilla", 1, 99.0)]
    page = render(JudgedTable.of(TABLE_2, rows), "mini").markdown()
    assert "No row has several seeds, so no difference can be tested" in page
    for word in ("RoPE <", "holds", "reversed", "pairs of rows", "are better", "†"):
        assert word not in page


def test_rows_beyond_the_paper_change_nothing_of_how_sure_its_own_are(make_result):
    """And theirs are judged among each other, as the paper's are."""
    values = {"base": 90.0, "rope": 89.5, "per": 89.8, "none": 91.0, "shaw": 89.4, "t5_only": 89.0}
    rows = [
        make_result(row, "vanilla", s, value + s + place * s * s / 40)
        for place, (row, value) in enumerate(values.items())
        for s in (1, 2, 3)
    ]

    def adjusted(*names):
        cells = gather([r for r in rows if r["row"] in ("base", *names)], PERPLEXITIES)
        return {
            n: e.adjusted
            for n, e in JudgedTable(TABLE_2, cells).against("vanilla", "test_ppl").items()
        }

    own, beyond = adjusted("rope", "per"), adjusted("none", "shaw", "t5_only")
    assert adjusted(*values) == {**own, **beyond}
    page = render(JudgedTable.of(TABLE_2, rows), "mini").markdown()
    differences = page.partition("## Differences from `base`")[2].partition("\n## ")[0]
    for label, row in (("RoPE", "rope"), ("PER", "per")):
        assert row_of(differences, label)[-1] == probability(own[row])
    order = page.partition("## Orderings of the paper")[2]
    assert row_of(order, "RoPE < Base")[-2] == probability(own["rope"])


def test_against_none():
    assert JudgedTable(TABLE_2, {}).against_none("linear") == {}


def test_table_5_orders_its_three_rows(make_result):
    values = {"lrpe_type2": 80.0, "lrpe_type6": 81.0, "lrpe_identity": 80.5}
    rows = [
        make_result(row, "linear", seed, value + seed + value * seed / 1e4, table="table5")
        for row, value in values.items()
        for seed in (1, 2, 3)
    ]
    page = render(JudgedTable.of(TABLE_5, rows), "mini").markdown()
    assert row_of(page, "Permutation < Identity")[-1] == "reversed"
    assert row_of(page, "Householder < Permutation")[-1] == "holds"
    assert "## Differences from `lrpe_identity`" in page


def test_paper_scale_shows_the_longer_context_too(make_result):
    result = make_result("rope", "linear", 1, 33.0, scale="paper")
    result["metrics"] |= {"valid_ppl_context_400": 31.0, "test_ppl_context_400": 30.0}
    page = render(JudgedTable.of(TABLE_2, [result]), "paper").markdown()
    longer = page[page.index("With at least 400 tokens of context") :]
    assert row_of(page[: page.index("With at least")], "RoPE (`rope`)")[5] == "33.00 (1)"
    assert row_of(longer, "RoPE (`rope`)")[5] == "30.00 (1)"
    assert "does not state its evaluation context" in page


def test_a_page_without_results_says_so():
    assert "No run is done yet" in render(JudgedTable.of(TABLE_2, []), "mini").markdown()


def test_report_leaves_out_results_of_another_experiment(root, make_result):
    result = make_result("rope", "linear", 1, 80.0, scale="toy")
    write_json(root / "results/table2/toy/rope-linear-s1.json", result)
    gone = make_result("removed", "linear", 1, 80.0, scale="toy")
    write_json(root / "results/table2/toy/removed-linear-s1.json", gone)
    report = Report(root, TABLE_2, EXPERIMENTS["lm"].scales["toy"])
    report.write()
    page = (root / report.page).read_text()
    assert "`rope-linear-s1`, made by another experiment" in page
    assert "there is no row removed" in page
    assert row_of(page, "RoPE (`rope`)")[4] == "-"
    assert "rope" in report.text(report.read())


def test_the_papers_marks_stand_beside_our_probabilities():
    values = {
        "learned": (80.0, 81.0, 82.0),
        "shaw_only": (85.1, 86.2, 87.0),
        "sinusoidal": (79.0, 79.5, 81.4),
    }
    columns = [column.metric for column in BERT_SQUAD_TABLE.columns]
    cells = {
        (row, "vanilla"): {metric: dict(enumerate(found)) for metric in columns}
        for row, found in values.items()
    }
    (section,) = marks(JudgedTable(BERT_SQUAD_TABLE, cells))
    page = section.text
    ours = JudgedTable(BERT_SQUAD_TABLE, cells).against("vanilla", "v1_f1")["shaw_only"]
    assert 0 < ours.p < ours.adjusted < 0.05
    expected = f"† / {probability(ours.p)} ({probability(ours.adjusted)})"
    assert row_of(page, "fully-learnable RPE |")[1:] == [expected] * 4
    assert row_of(page, "fixed sin. APE |")[1].startswith("- / worse, 0.")
    assert row_of(page, "learnable sin. APE |")[1:] == ["† / -", "† / -", "- / -", "- / -"]
    assert "`learned`" not in [line.split("|")[1] for line in page.splitlines() if "|" in line]
    assert marks(JudgedTable(TABLE_2, cells)) == []
    assert BERT_SQUAD_TABLE.row("shaw_only").paper["vanilla"]["v1_f1"].text(2) == "90.50† ± 0.08"
