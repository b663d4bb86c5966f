"""Pages: every target of a device stands on its page, met, missed or not measured."""

import itertools

import pytest

from benchmarks import page, table9_page
from benchmarks.__main__ import write_page
from benchmarks.catalog import BENCHMARKS
from benchmarks.context import ROOT, Context
from benchmarks.cross_entropy import PARTS
from benchmarks.limits import Work, join_peaks, rates
from benchmarks.page import TABLE_9, TARGETS, Target
from benchmarks.table9_page import ROWS, read_cells
from fairseq_plugins.common.files import write_json
from fairseq_plugins.papers import lrpe_speed
from fairseq_plugins.papers.tables import ATTENTIONS

AROUND = {
    "command": ["python", "-m", "benchmarks"],
    "source": "0" * 16,
    "commit": "0" * 40 + "-dirty",
    "versions": {"python": "3.11.7", "torch": "2.13.0", "fairseq": "0.12.3.1"},
    "hardware": {"cpu": "A CPU", "cores": 2, "threads": 1, "gpus": [], "memory_gib": 4.0},
    "load_average": 0.1,
    "wall_seconds": 1.0,
    "finished_at": "2026-01-01T00:00:00+00:00",
}


def made_up(name, ratios):
    found = {"medians": {}, "rounds": {}, "ratios": ratios, "values": {}, "skipped": {}}
    found["quartiles"] = {key: (0.9 * value, 1.1 * value) for key, value in ratios.items()}
    settings = BENCHMARKS[name].settings("cpu", False)
    return {"benchmark": name, "device": "cpu", "settings": settings, "found": found, **AROUND}


def lines_of(results, device="cpu"):
    text = page.render(device, results, {name: b.summary for name, b in BENCHMARKS.items()})
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].removeprefix("| "): row for row in rows}, text


def test_met_missed_and_absent():
    ratios = {"linear/softmax@512": 0.2, "linear/softmax@2048": 0.25}
    lines, text = lines_of({"causal": made_up("causal", ratios)})
    start = "causal linear, forward+backward, / SDPA causal, N = "
    assert lines[f"{start}512"][1:] == ["<= 0.22", "0.200", "0.180 to 0.220", "met |"]
    assert lines[f"{start}2,048"][1:] == ["<= 0.09", "0.250", "0.225 to 0.275", "missed |"]
    assert lines[f"{start}8,192"][1:] == ["<= 0.035", "-", "-", "not measured |"]
    of_cpu = [target.what for target in TARGETS if "cpu" in target.devices]
    assert f"1 met, 1 missed, {len(of_cpu) - 2} not measured." in text
    assert all(what in lines for what in of_cpu)


def test_higher_is_better_where_it_is():
    speed, time = (Target("", "", "", 0.97, at_least, ["cpu"]) for at_least in (True, False))
    assert [speed.verdict(value) for value in (0.97, 1.2, 0.96)] == ["met", "met", "missed"]
    assert [time.verdict(value) for value in (0.97, 0.5, 0.98)] == ["met", "met", "missed"]


@pytest.mark.parametrize(("device", "other"), [("cpu", "gpu"), ("gpu", "cpu")])
def test_targets_of_another_device_are_on_its_page(device, other):
    result = made_up("causal", {"linear/flash@2048": 0.5, "linear/softmax@512": 0.2})
    lines, text = lines_of({"causal": result}, device)
    assert not any(target.what in lines for target in TARGETS if target.devices == [other])
    assert "1 met, 0 missed" in text
    assert f"Targets for a {other.upper()} are on the page of a {other.upper()}." in text


def test_an_empty_page():
    _, text = lines_of({})
    assert "No benchmark is done yet." in text and "0 met, 0 missed" in text


def with_limits(name):
    """A result with a time that is counted, one that is not, and one by a formula."""
    result = made_up(name, {})
    found = result["found"]
    found["medians"] = {"linear@512": 0.5, "outer@512": 2.0, "recurrent@512": 1.0}
    found["rounds"] = dict.fromkeys(found["medians"], 5)
    peaks = {"gemm_size": 1024, "copy_bytes": 2**28, "repetitions": 9, "gemm_dtype": "float32"}
    found["peaks"] = {**peaks, "gflop_per_s": [160.04, 150.0], "gb_per_s": [10.0, 12.5]}
    found["work"] = {
        "linear@512": vars(Work(40 * 10**9, 10**9)),
        "outer@512": vars(Work(source="RuntimeError: no")),
        "recurrent@512": vars(Work(10**9, 10**9, "by a formula")),
    }
    found["rates"] = {
        key: rates(Work(**work), found["medians"][key], found["peaks"])
        for key, work in found["work"].items()
    }
    return result


def test_times_beside_their_distance_to_the_limits():
    lines, text = lines_of({"causal": with_limits("causal")})
    assert lines["`linear@512`"][1:] == ["500.000", "5", "80", "50.0", "2", "16.0 |"]
    assert lines["`outer@512`"][1:] == ["2000.000", "5", "-", "-", "-", "- |"]
    assert lines["`recurrent@512`"][3:] == ["1", "0.6", "1", "8.0 |"]
    assert (
        "Peaks before and after: 160 and 150 GFLOP/s in a product of two 1,024 x 1,024 matrices, "
        "float32; 10 and 12.5 GB/s in a copy of 256 MiB."
    ) in text
    assert "- Work of `outer@512`: RuntimeError: no." in text
    assert "- Work of `recurrent@512`: by a formula." in text
    assert "peaks" not in text.partition("Settings:")[2].partition("\n")[0]


def test_a_result_of_before_has_no_limits():
    result = with_limits("causal")
    for key in ("work", "rates", "peaks"):
        del result["found"][key]
    lines, text = lines_of({"causal": result})
    assert lines["`linear@512`"][1:] == ["500.000", "5", "-", "-", "-", "- |"]
    assert "Peaks before" not in text and "Work of" not in text


def test_peaks_of_many_cells_are_a_range():
    result = with_limits("table9")
    peaks = result["found"]["peaks"]
    result["found"]["peaks"] = join_peaks([peaks, {**peaks, "gflop_per_s": [99.0, 170.0]}])
    assert "Peaks before and after: 99 to 170 GFLOP/s" in lines_of({"table9": result})[1]


def ratio_keys(name, device):
    """The ratios that a benchmark writes, from its settings."""
    settings = BENCHMARKS[name].settings(device, False)
    ours = ("linear", "linear_encoded")
    if name == "causal":
        wanted = settings["contenders"].items()
        keys = {f"{o}/{c}@{n}" for o in ours for c, lengths in wanted for n in lengths}
        return keys | {f"{o}/peak_gemm@{n}" for o in ours for n in settings["contenders"][o]}
    if name == "scaling":
        short, long = settings["lengths"]
        return {f"{o}@{long}/{o}@{short}" for o in ours}
    if name == "memory":
        parts, wanted = ("forward", "forward+backward"), settings["contenders"].items()
        return {f"{p} {c}@{n}" for p in parts for c, lengths in wanted for n in lengths}
    if name == "decoding":
        short, long = settings["contexts"]
        keys = {f"{a}@{long}/{a}@{short}" for a in ATTENTIONS}
        return keys | {f"linear@{short}/vanilla@{short}"}
    if name == "denominators":
        drawn = itertools.product(*(settings[k] for k in ("encodings", "normalizers", "head_dims")))
        return {f"{e} {n}, heads of {d}@{t}" for e, n, d in drawn for t in settings["lengths"]}
    if name == "generation":
        return {f"{encoding} {attention}/own" for encoding, attention in settings["rows"]}
    if name == "lm_step":
        return {f"{a}/transformer_lm@{n}" for a in ATTENTIONS for n in settings["lengths"]}
    if name == "cross_entropy":
        keys = [f"{p} blockwise/plain@{v}" for p in PARTS for v in settings["vocabularies"]]
        return {*keys, *(f"memory {key}" for key in keys)}
    if name == "preparation":
        peers = {"tokenise": "sacremoses", "learn": "subword-nmt", "apply": "subword-nmt"}
        return {f"{part} ours/{peer}" for part, peer in peers.items()}
    if name == "bias":
        other = "flash" if device == "gpu" else "softmax"
        short, long = settings["memory_lengths"]
        names = settings["encodings"]
        keys = {f"{n}/{other}@{settings['length']}" for n in names}
        return keys | {f"memory {n} {short}->{long}" for n in names}
    assert name == "table9"
    return {f"{row} {a}" for row in ROWS for a in ATTENTIONS}


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.what)
def test_every_target_is_measured_on_its_devices(target):
    for device in target.devices:
        assert target.ratio in ratio_keys(target.benchmark, device)


def cell(row, attention, speed):
    config = {"layers": 4, "width": 512, "heads": 8, "ffn": 2048, "dictionary": 1000}
    return {
        "table": "table9",
        "row": row,
        "attention": attention,
        "scale": "cpu",
        "metrics": {"relative_speed": speed, "quartiles": [speed, speed], "rounds": 7},
        "config": {**config, "batch": 2, "length": 512, "dtype": "float32"},
        **AROUND,
    }


def test_table9_page():
    speeds = {
        ("rope", "linear"): 0.99,
        ("rope", "vanilla"): 0.90,
        ("base+rope", "linear"): 0.95,
        ("none", "linear"): 1.01,
    }
    text = table9_page.render("cpu", {key: cell(*key, speed) for key, speed in speeds.items()})
    measured, _, aimed = text.partition("Targets of this project")
    lines = {line.split(" | ")[0]: line for line in measured.splitlines() if line.startswith("| ")}
    same = "0.990 to 0.990"
    assert lines["| RoPE (`rope`)"] == (
        f"| RoPE (`rope`) | 0.97 | 0.990 | {same} | 0.95 | 0.900 | 0.900 to 0.900 |"
    )
    assert lines["| T5 (`t5`)"].split(" | ")[4:] == ["0.70", "-", "- |"]
    assert "| RoPE (`rope`) | >= 0.98 | 0.990 | met | >= 0.98 | 0.900 | missed |" in aimed
    assert "| T5 (`t5`) | - | - | - | >= 0.85 | - | - |" in aimed
    assert lines["| `base+rope`"].split(" | ")[1:3] == ["-", "0.950"]
    assert lines["| no position (`none`)"].split(" | ")[2:5] == ["1.010", "1.010 to 1.010", "-"]
    assert "4 layers of 512 features, 8 heads, feed-forward 2048, a dictionary of 1,000" in text
    assert "No cell is measured yet" in table9_page.render("cpu", {})


def test_table9_has_a_figure_and_names_the_site(tmp_path):
    folder = tmp_path / "cpu"
    for row in ("base", "rope"):
        write_json(folder / f"{row}-linear.json", {**cell(row, "linear", 0.98), "command": []})
    (folder / "xl-linear.json").write_text('{"row": "xl"')
    write_json(folder / "t5-linear.json", {"row": "t5", "metrics": {}})
    assert [*read_cells(folder)] == [("base", "linear"), ("rope", "linear")]
    table9_page.write_page(folder)
    text = (tmp_path / "cpu.md").read_text()
    assert "0.980" in text
    assert "![Speeds against Base](cpu.png)" in text
    assert "`site/report/speed.html`" in text
    assert (tmp_path / "cpu.png").read_bytes().startswith(b"\x89PNG")


def test_table9_names_the_papers_numbers_and_targets_of_its_own_rows():
    assert set(lrpe_speed.SPEEDS) == set(ATTENTIONS)
    assert all(set(rows) <= set(ROWS) for rows in lrpe_speed.SPEEDS.values())
    assert set(lrpe_speed.LABELS) == set(ROWS)
    assert TABLE_9 and TABLE_9.keys() <= {f"{row} {a}" for row in ROWS for a in ATTENTIONS}


def test_curves_by_length():
    found = {"medians": {"linear@1024": 2.0, "linear@512": 1.0}}
    found["values"] = {"bytes linear@512": 2**21}
    result = {"found": found}
    assert page.curves(result, "medians", 1e-3) == {"linear": ((512, 1024), (1000.0, 2000.0))}
    assert page.curves(result, "values", 2**20) == {"linear": ((512,), (2.0,))}


PAGES = sorted((ROOT / "benchmarks" / "results").glob("*/?pu.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.parent.name)
def test_committed_pages_are_up_to_date_and_explain_what_is_missed(path, monkeypatch):
    monkeypatch.setattr(page, "write", lambda path, *contents: page.render(path.stem, *contents))
    text = write_page(Context(path.stem, ROOT, machine=path.parent.name))
    assert text == path.read_text("utf-8")
    assert ("Why targets are missed" in text) == (" 0 missed" not in text)
    assert "Not explained yet" not in text


def test_the_committed_table_9_is_up_to_date():
    folder = ROOT / "results" / "table9" / "cpu"
    text = table9_page.render(folder.name, read_cells(folder))
    assert text == folder.with_suffix(".md").read_text("utf-8")
    assert "Why targets are missed" in text and "Not explained yet" not in text
