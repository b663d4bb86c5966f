"""A user's own results stand beside the repository's, marked; what is damaged is named."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fairseq_plugins.common import data_commands
from fairseq_plugins.common.matrices import LARGEST, pack
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.site.build import build
from fairseq_plugins.site.claims import claim_views
from fairseq_plugins.site.figures import maps
from fairseq_plugins.site.markdown import inline, to_html
from fairseq_plugins.site.reading import read_evidence
from fairseq_plugins.site.runs import script
from fairseq_plugins.site.speed import table9
from fairseq_plugins.statistics.table_results import Evidence, TableResults
from tests.site_links import dead_links

ROOT = Path(__file__).parents[2]
MINI = ROOT / "results" / "table2" / "mini"
BOTH = [f"{row}-linear-s{seed}.json" for row in ("base", "rope", "lrpe_type2") for seed in (1, 2)]


def put(folder: Path, name: str, **changes: object) -> None:
    """A committed result somewhere, with other words."""
    folder.mkdir(parents=True, exist_ok=True)
    content = read_content(MINI / name)
    (folder / name).write_text(json.dumps({**content, **changes}))


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Of Table 2 the committed results, some trained again, a study, one that is all damaged.

    In a folder without ``configs``, as one with copied results is.
    """
    root = tmp_path_factory.mktemp("repository")
    results = root / "results"
    for name in BOTH:
        put(results / "table2" / "mini", name)
        put(results / "local" / "table2" / "mini", name)
    study = {"name": "mine", "overrides": [], "data": "data/novel"}
    put(results / "table2" / "mine", BOTH[0], study=study)
    broken = results / "table2" / "broken"
    broken.mkdir()
    (broken / BOTH[0]).write_text("{")
    timings = results / "table9" / "cpu"
    timings.mkdir(parents=True)
    shutil.copy(ROOT / "results" / "table9" / "cpu" / "rope-linear.json", timings)
    (timings / "per-linear.json").write_text('{"row": "per", "attention": "linear"}')
    machine = root / "benchmarks" / "results" / "some" / "cpu"
    machine.mkdir(parents=True)
    (machine / "causal.json").write_text("[")
    shutil.copy(ROOT / "benchmarks" / "results" / "targets.json", machine.parents[1])
    return read_evidence(root, processes=1)


@pytest.fixture(scope="module")
def site(evidence: Evidence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "site"
    build(evidence, folder, say=lambda _: None, pictures=[])
    return folder


def table(evidence: Evidence, scale: str) -> TableResults:
    found = evidence.find("table2", scale)
    assert found is not None
    return found


def test_what_was_trained_again_has_pages_of_its_own(evidence: Evidence, site: Path) -> None:
    theirs, own = table(evidence, "mini"), table(evidence, "local-mini")
    assert len(theirs.shown) == len(own.shown) == len(BOTH)
    assert not theirs.is_own and own.is_own
    text = (site / "run-table2-local-mini-rope-linear.html").read_text(encoding="utf-8")
    assert "your own" in text
    assert "results/local/table2/mini/rope-linear-s1.json" in text
    assert "--attention linear --seeds 1,2 --rerun" in text
    assert "your own" not in (site / "run-table2-mini-rope-linear.html").read_text(encoding="utf-8")
    assert dead_links(site) == []


def test_a_claim_is_judged_at_each_scale_that_has_results(evidence: Evidence, site: Path) -> None:
    (view,) = (v for v in claim_views(evidence) if v.claim.name == "lm-linear-type2-rope")
    assert [one.scale for one in view.shown] == ["mini", "local-mini"]
    commands = [one.command for one in view.shown]
    assert [" --rerun" in command for command in commands] == [False, True]
    assert all("--scale mini " in command for command in commands)
    assert evidence.numbers["local-mini"].scale == "mini", "judged as the scale that it repeats"
    index = (site / "index.html").read_text(encoding="utf-8")
    assert index.count(f'href="{view.page}"') == 2


def test_a_study_is_shown_as_the_users_own(evidence: Evidence, site: Path) -> None:
    own = table(evidence, "mine")
    assert own.is_own and len(own.shown) == 1
    assert script(own, ["base"], ["linear"], [1]).endswith(
        "--seeds 1 --name mine --data data/novel"
    )
    tables = (site / "tables.html").read_text(encoding="utf-8")
    assert "your own" in tables and "PPL (test) on the data <code>novel</code>" in tables
    page = (site / own.page).read_text(encoding="utf-8")
    assert "On the data <code>novel</code>" in page and "WikiText-103" not in page


def test_a_study_that_came_with_the_repository_is_not_the_users_own(tmp_path: Path) -> None:
    study = {"name": "shipped", "overrides": [], "data": None}
    put(tmp_path / "results" / "table2" / "shipped", BOTH[0], study=study)
    words = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "results"]
    for command in (["init", "-q"], ["add", "results"], words):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert not table(read_evidence(tmp_path, processes=1), "shipped").is_own


def test_a_study_whose_files_are_all_damaged_is_named(evidence: Evidence, site: Path) -> None:
    (sentence,) = table(evidence, "broken").left_out
    assert "base-linear-s1.json is not a complete result" in sentence
    for page in ("index.html", "table2-broken.html"):
        assert sentence.partition(" (")[0] in (site / page).read_text(encoding="utf-8")


def test_damaged_measurements_of_speed_are_named(evidence: Evidence, site: Path) -> None:
    assert [text.partition(" is ")[0] for text in evidence.left_out] == [
        "results/table9/cpu/per-linear.json",
        "benchmarks/results/some/cpu/causal.json",
    ]
    for page in ("index.html", "speed.html"):
        text = (site / page).read_text(encoding="utf-8")
        assert all(sentence.partition(" (")[0] in text for sentence in evidence.left_out), page


def test_table_9_has_the_papers_speed_the_target_and_a_verdict(evidence: Evidence) -> None:
    speeds = {(one.row, one.group): one for one in table9(evidence)["cpu"]}
    rope, per = speeds["rope", "linear"], speeds["per", "linear"]
    assert (rope.paper, rope.bound) == (0.97, "at least 0.98")
    assert rope.value is not None
    assert rope.verdict == ("met" if rope.value >= 0.98 else "missed")
    assert (per.paper, per.value, per.verdict) == (0.88, None, "")


def test_without_a_checkout_commands_are_those_of_the_package(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = table(evidence, "mini")
    assert script(own, ["rope"], ["linear"], []).startswith("scripts/table2.sh --scale mini")
    monkeypatch.setattr(data_commands, "IS_CHECKOUT", False)
    command = script(own, ["rope"], ["linear"], [])
    assert command == "fairseq-pe table table2 --scale mini --rows rope --attention linear"


def test_links_lead_to_places_on_the_site_or_are_text() -> None:
    text = "[a](mini.svg) ![b](mini.png) [c](https://example.org) [d](other.md)"
    html = to_html(text)
    assert 'a b <a href="https://example.org">c</a> d' in html
    assert html.count("<a ") == html.count("</a>") == 1
    assert inline("see [x](y.md)") == "see x"


def test_a_figures_matrices_are_maps_with_named_axes() -> None:
    square = [[float(i * j) for j in range(9)] for i in range(9)]
    panels = dict(
        maps(
            {
                "learned, absolute": {"dot_products": square, "by_offset": [0.0] * 17},
                "shaw, relative": {"dot_products": square},
                "psi": {"default": [1.0] * 9, "learned": [2.0] * 9},
                "words": 100,
            }
        )
    )
    axes = {
        name: [chart["layout"][side]["title"]["text"] for side in ("xaxis", "yaxis")]
        for name, chart in panels.items()
    }
    assert axes == {
        "learned, absolute: dot products": ["position", "position"],
        "learned, absolute: by offset": ["offset", "mean dot product"],
        "shaw, relative: dot products": ["offset", "offset"],
        "psi": ["offset", "psi"],
    }
    assert panels["shaw, relative: dot products"]["data"][0]["first"] == -4
    assert panels["learned, absolute: by offset"]["data"][0]["x0"] == -8
    assert [trace["name"] for trace in panels["psi"]["data"]] == ["default", "learned"]


def test_lines_are_over_the_offsets_of_their_figure() -> None:
    reaches = [1, 2, 3, 4, 8, 16, 32, 64, 127]
    content = {"reaches": reaches, "monotonicity, QQP": [0.1] * 9, "shorter": [0.2] * 8}
    charts = dict(maps(content))
    assert [*charts] == ["monotonicity, QQP", "shorter"]
    own = charts["monotonicity, QQP"]
    assert own["layout"]["xaxis"]["title"]["text"] == "largest offset"
    assert own["data"][0]["x"] == reaches and charts["shorter"]["data"][0]["dx"] == 1


def test_frequencies_below_0_are_on_their_logarithmic_axis() -> None:
    ((_, chart),) = maps({"frequencies": {"learned": [1.0, -0.5] * 4}})
    assert chart["layout"]["yaxis"]["type"] == "log"
    assert chart["data"][0]["y"] == [1, 0.5] * 4


def test_lists_of_several_lengths_are_drawn_whole() -> None:
    """As the frequencies of models of different widths."""
    ((_, chart),) = maps({"frequencies": {"narrow": [0.5] * 8, "wide": [0.5] * 12}})
    assert [len(trace["y"]) for trace in chart["data"]] == [8, 12]


def test_vectors_of_a_length_are_positions_by_features() -> None:
    square = [[float(i * j) for j in range(9)] for i in range(9)]
    ((_, chart),) = maps({"encodings": {"rspe": {"vectors": {"20": square}}}})
    sides = [chart["layout"][side]["title"]["text"] for side in ("xaxis", "yaxis")]
    assert sides == ["feature", "position"]


def test_a_packed_matrix_is_the_map_of_its_numbers() -> None:
    matrix = np.rint(np.linspace(0, LARGEST, 81)).reshape(9, 9)  # multiples of its unit, 1
    plain, packed = (maps({"learned": {"scores": one}}) for one in (matrix.tolist(), pack(matrix)))
    assert [name for name, _ in packed] == ["learned: scores"]
    assert plain == packed
