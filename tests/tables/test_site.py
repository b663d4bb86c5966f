"""The site says what the results say, and nothing in a result becomes markup."""

import json
import re
import shutil
from pathlib import Path

import pytest

from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.papers import CLAIMS, TABLES
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.site import charts
from fairseq_plugins.site.build import MARKER, build, same_charts
from fairseq_plugins.site.claims import p_text
from fairseq_plugins.site.figures import FigureView
from fairseq_plugins.site.formula import mathml
from fairseq_plugins.site.kinds import kind_of
from fairseq_plugins.site.markdown import to_html
from fairseq_plugins.site.reading import read_evidence
from fairseq_plugins.site.runs import command_pattern, table_cells
from fairseq_plugins.site.tables import site_lines
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.table_results import Evidence, TableResults
from fairseq_plugins.statistics.verdicts import Word
from tests.site_links import dead_links, pages

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}"
KEPT = [f"{row}-linear-s{seed}" for row in ("base", "rope", "lrpe_type2") for seed in (1, 2, 3)]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Some of the repository's results, one of them damaged, one with a hostile machine."""
    root = tmp_path_factory.mktemp("repository")
    folder = root / "results" / "table2" / "mini"
    shutil.copytree(ROOT / "results" / "table2" / "mini" / "recipes", folder / "recipes")
    for name in KEPT:
        shutil.copy(ROOT / "results" / "table2" / "mini" / f"{name}.json", folder)
    hostile = folder / "rope-linear-s1.json"
    content = json.loads(hostile.read_text())
    content["hardware"]["cpu"] = HOSTILE
    content["command"].append(HOSTILE)
    hostile.write_text(json.dumps(content))
    (folder / "rope-linear-s9.json").write_text("{")
    timings = root / "results" / "table9" / "cpu"
    timings.mkdir(parents=True)
    shutil.copy(ROOT / "results" / "table9" / "cpu" / "rope-linear.json", timings)
    (timings / "base-linear.json").write_text("[]")
    shutil.copytree(timings, root / "results" / "table9" / "toy" / "cpu")  # of a toy paper
    return read_evidence(root, processes=1)


@pytest.fixture(scope="module")
def site(evidence: Evidence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "site"
    build(evidence, folder, say=lambda _: None, pictures=["rope"])
    return folder


def test_every_link_leads_somewhere(site: Path) -> None:
    assert dead_links(site) == []


def test_nothing_comes_from_a_network(site: Path) -> None:
    assert not [name for name, page in pages(site).items() if page.from_elsewhere]


def test_scripts_are_unpacked(site: Path) -> None:
    loaded = (site / "static" / "vendor" / "plotly-cartesian.min.js").read_text(encoding="utf-8")
    assert "plotly.js" in loaded[:200] and not list(site.rglob("*.gz"))


def test_there_is_a_page_for_each_claim_and_each_encoding(site: Path) -> None:
    found = set(pages(site))
    assert {f"claim-{claim.name}.html" for claim in CLAIMS} <= found
    assert {f"encoding-{name}.html" for name in ENCODINGS} <= found


def test_every_verdict_has_a_colour(site: Path) -> None:
    style = (site / "static" / "site.css").read_text(encoding="utf-8")
    assert not [word for word in Word if f".{word.replace(' ', '-')}," not in style]


def test_nothing_in_a_result_becomes_markup(site: Path) -> None:
    for name, page in pages(site).items():
        assert page.tags.count("img") == 0, name
    text = (site / "run-table2-mini-rope-linear.html").read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "{{ 7*7 }}" in text
    data = (site / "static" / "compare-data.js").read_text(encoding="utf-8")
    assert "<" not in data


def test_the_timings_of_a_toy_paper_are_no_device(evidence: Evidence) -> None:
    assert list(evidence.timings) == ["cpu"]


def test_a_damaged_result_is_shown_as_such(evidence: Evidence, site: Path) -> None:
    (table,) = evidence.tables
    assert len(table.left_out) == 1
    for page in ("index.html", "table2-mini.html"):
        text = (site / page).read_text(encoding="utf-8")
        assert "rope-linear-s9.json is not a complete result" in text, page


def test_a_line_says_paper_ours_and_how_sure(evidence: Evidence) -> None:
    (table,) = evidence.tables
    lines = {(line.row, line.attention): line for line in site_lines(table)}
    line = lines["rope", "linear"]
    number = line.numbers["test_ppl"]
    assert number.paper == "33.13" and number.ours.endswith("(3)")
    assert line.kind == "transforms q, k"
    assert lines["base", "linear"].verdict == "reference"
    assert lines["rope", "vanilla"].verdict == "not run"
    better = lines["lrpe_type2", "linear"]
    assert better.verdict in ("better", "tie")
    assert better.effect_order < 0


def test_a_claims_page_says_how_sure_and_how_to_run_it(site: Path) -> None:
    text = (site / "claim-lm-linear-type2-rope.html").read_text(encoding="utf-8")
    assert "over 3 seeds that both sides share" in text
    assert "--rows lrpe_type2,rope --attention linear --seeds 1,2,3" in text


def test_p_of_a_margin_for_every_row_is_not_that_of_no_effect() -> None:
    claims = {claim.name: claim for claim in CLAIMS}
    half = Estimate(0.5, p=0.5)
    assert p_text(claims["glue-learned-best"], half) == "p = 0.500 for the threshold"
    assert p_text(claims["glue-none"], half) == "p = 0.500 for no effect"


def test_table_5_has_its_correlations_with_similarity_held_constant_too(tmp_path: Path) -> None:
    rows = ("learned", "sinusoidal", "learnable_sinusoidal", "shaw_only", "learned_shaw")
    for table in ("bert_table2", "bert_table4"):
        published = ROOT / "results" / table / "published"
        folder = tmp_path / "results" / table / "published"
        shutil.copytree(published / "recipes", folder / "recipes")
        for row in rows:
            shutil.copy(published / f"{row}-vanilla-s1.json", folder)
    found = read_evidence(tmp_path, processes=1)
    build(found, tmp_path / "site", say=lambda _: None, pictures=["rope"])
    page = (tmp_path / "site" / "bert_table5-published.html").read_text(encoding="utf-8")
    options = re.findall(r"<option[^>]*>([^<]+)</option>", page)
    assert options[1:] == ["bert_table3", "bert_table4"]
    _, _, held = page.partition("<h2>With similarity to the published model held constant</h2>")
    assert re.search(r'<th scope="row">EM, v1.1</th><td class="number">[+-]\d\.\d\d <small>', held)


def test_a_cells_page_has_its_runs(site: Path) -> None:
    text = (site / "run-table2-mini-rope-linear.html").read_text(encoding="utf-8")
    for word in (
        "Seed 1",
        "Seed 3",
        "model.position_encoding",
        "torch",
        "table2-mini.html#commands",
    ):
        assert word in text
    assert "results/table2/mini/rope-linear-s1.json" in text


def test_the_commands_of_all_runs_are_on_the_tables_page_once(evidence: Evidence) -> None:
    """RoPE's first run has one of its own here."""
    (found,) = evidence.tables
    collected = table_cells(found)
    assert len(collected.commands) == 2
    (cell,) = (one for one in collected.cells if (one.row, one.attention) == ("rope", "linear"))
    views = cell.runs
    assert [view.commands for view in views] == [2, 1, 1]
    assert not any(view.differs for view in views), "the seed and its folders are no difference"
    assert "machine" in dict(views[1].circumstances), "the first's machine is another one"


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("table2", "mini"),
        ("table3", "published"),
        ("bert_table3", "published"),
        ("bert_table4", "published"),
    ],
)
def test_commands_say_what_each_run_gave(name: str, scale: str) -> None:
    """Fine-tuned rows of mini start from the model of seed 1, whatever their own."""
    runs = [read_content(path) for path in sorted((RESULTS / name / scale).glob("*-s[123].json"))]
    shared = table_cells(TableResults(TABLES[name], scale, runs, []))
    for run in runs:
        words = {"ROW": run["row"], "ATTENTION": run["attention"], "SEED": str(run["seed"])}
        text = command_pattern(run)
        assert text in shared.commands
        for word, own in words.items():
            text = text.replace(word, own)
        assert text == "\n".join(run["command"])


def test_charts_with_the_same_numbers_are_kept_once() -> None:
    def figure(name: str, *tops: float) -> FigureView:
        return FigureView(name, name, [("", charts.heat([[0.0, top]], x="", y="")) for top in tops])

    assert same_charts([figure("one", 1.0, 2.0), figure("other", 2.0, 3.0)]) == {"other-1": "one-2"}


def test_a_folder_of_something_else_is_left_alone(evidence: Evidence, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="--output must be a new folder or a report"):
        build(evidence, tmp_path, pictures=[])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("name", sorted(n for n, e in ENCODINGS.items() if not e.parts))
def test_every_formula_is_well_formed(name: str) -> None:
    from lxml import etree

    text = str(mathml(ENCODINGS[name].formula))
    tree = etree.fromstring(re.sub(r"&(?!(?:amp|lt|gt|quot|#x27);)\w+;", "x", text))
    assert tree.tag == "math"
    assert tree.get("aria-label") == ENCODINGS[name].formula


def test_a_formula_has_what_stands_below_above_and_under_a_root() -> None:
    assert "<msub><mi>x</mi><mi>s</mi></msub>" in mathml("x_s + p_s")
    assert "<msup><mi>P</mi><mi>H</mi></msup>" in mathml("P^H Lambda(s) P")
    assert "<msqrt><mi>D</mi></msqrt>" in mathml("q.k / sqrt(D)")
    assert "<munder><mo>∑</mo><mi>j</mi></munder>" in mathml("sum_j w_j")
    assert "<mtext>&nbsp;learned&nbsp;</mtext>" in mathml("theta learned")
    assert "&lt;" in mathml("0 < p")


def test_markdown_has_no_markup_of_its_own() -> None:
    html = to_html("# a\n\n<b onclick=x>b</b> ![i](http://x/y.png)\n\n| a |\n| - |\n| <i> |")
    assert "<b" not in html
    assert "<img" not in html
    assert "<i>" not in html
    assert 'role="region"' in html


def test_kinds_follow_from_the_hooks() -> None:
    kinds = {name: kind_of(name) for name in ("base", "rope", "alibi", "shaw", "none")}
    assert kinds == {
        "base": "absolute",
        "rope": "transforms q, k",
        "alibi": "bias",
        "shaw": "relative logits",
        "none": "none",
    }
    assert kind_of("no_such") == "other"


def test_a_heat_map_keeps_its_numbers_to_a_ninetieth_of_the_largest() -> None:
    values = [[0.0, -2.0], [1.0, 0.5], [2.0, -0.3]]
    (trace,) = charts.heat(values, x="", y="")["data"]
    rows = [row.translate(str.maketrans('~! "', "<>&'")) for row in trace["shades"]]
    back = [[(ord(one) - trace["zero"]) * trace["unit"] for one in row] for row in rows]
    for row, kept in zip(values, back, strict=True):
        assert kept == pytest.approx(row, abs=2.0 / 90 + 1e-3)


def test_a_large_heat_map_is_thinned_with_its_positions() -> None:
    values = [[float(row * 250 + column) for column in range(250)] for row in range(250)]
    (trace,) = charts.heat(values, x="", y="", first=1)["data"]
    assert trace["step"] == 3 and {len(row) for row in trace["shades"]} == {len(trace["shades"])}
    last = (ord(trace["shades"][-1][-1]) - trace["zero"]) * trace["unit"]
    assert last == pytest.approx(values[249][249], rel=0.02)


def test_a_few_numbers_do_not_leave_a_heat_map_pale() -> None:
    values = [[0.01 * (row - column) for column in range(20)] for row in range(20)]
    values[0][0], values[3][2] = 50.0, -40.0
    (trace,) = charts.heat(values, x="", y="")["data"]
    ends = [45 * trace["unit"] * sign for sign in (1, -1)]
    assert ends == pytest.approx([0.19, -0.19], abs=0.02)
    assert [trace["shades"][0][0], trace["shades"][3][2]] == [chr(80 + 45), chr(80 - 45)]
    assert trace["beyond"] == 2
    (trace,) = charts.heat([[0.0] * 100] * 2 + [[0.0, 7.0]], x="", y="")["data"]
    assert trace["unit"] == pytest.approx(7 / 45, rel=1e-3) and not trace["beyond"]


def test_even_places_of_a_line_are_its_start_and_step() -> None:
    even, uneven = [(-2.0, 1.0), (-1.0, 4.0), (0.0, 9.0)], [(1.0, 1.0), (2.0, 4.0), (4.0, 9.0)]
    traces = charts.lines({"even": even, "uneven": uneven}, x="", y="")["data"]
    assert (traces[0]["x0"], traces[0]["dx"]) == (-2, 1) and "x" not in traces[0]
    assert traces[1]["x"] == [1, 2, 4] and "x0" not in traces[1]
    assert [trace["y"] for trace in traces] == [[1, 4, 9]] * 2
