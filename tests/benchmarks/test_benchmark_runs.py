"""Each benchmark at its tiny size: it runs through, its JSON is whole, what is done is skipped."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import preparation, table9, table9_cells
from benchmarks.catalog import BENCHMARKS, check_names
from benchmarks.context import Context
from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.records import logs

AROUND = ("command", "source", "versions", "hardware")
AT_THE_END = ("commit", "load_average", "wall_seconds", "finished_at")
KEYS = ("benchmark", "device", "settings", "found", *AROUND, *AT_THE_END)
CELL = ("table", "row", "attention", "scale", "config", "metrics", *AROUND, *AT_THE_END)


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    monkeypatch.setattr(table9_cells, "default_rows", lambda: ["base", "rope", "t5"])


def run(output, *words):
    return program.main(["--quick", "--machine", "here", "--output", str(output), *words])


LONG = tuple(name for name in BENCHMARKS if name not in ("causal", "denominators", "preparation"))


def result(output, name):
    return json.loads((results(output) / "cpu" / f"{name}.json").read_text())


def results(output):
    return output / "benchmarks" / "results" / "here"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in BENCHMARKS]
)
def test_quick_run(name, tmp_path):
    assert run(tmp_path, "--only", name) == 0
    found = result(tmp_path, name)
    assert tuple(found) == KEYS
    assert found["benchmark"] == name and found["device"] == "cpu"
    assert found["command"][:3] == ["python", "-m", "benchmarks"]
    assert found["hardware"]["threads"] == 1
    numbers = found["found"]
    assert numbers["ratios"] or numbers["values"]
    for part in ("medians", "ratios", "values"):
        assert all(math.isfinite(v) and v > 0 for v in numbers[part].values())
    for key, (first, third) in numbers["quartiles"].items():
        assert first <= numbers["ratios"][key] <= third
    assert_limits(name, found)
    page = (results(tmp_path) / "cpu.md").read_text()
    assert f"## `{name}`" in page
    if name == "figure" and is_installed("matplotlib"):
        drawn = results(tmp_path) / "cpu-lengths.png"
        assert drawn.read_bytes().startswith(b"\x89PNG") and f"({drawn.name})" in page
    leftovers = [path for path in tmp_path.rglob(".*") if path.is_file()]
    assert not leftovers


def assert_limits(name, result):
    """Peaks from before and after, and the work and rates of every time."""
    # In which no products are timed.
    if name in ("preparation", "generation", "paper_speed", "denominators"):
        assert not result["found"]["work"] and not result["found"]["peaks"]
        return
    numbers, sizes = result["found"], result["settings"]["peaks"]
    assert numbers["peaks"] == {**numbers["peaks"], **sizes, "gemm_dtype": "float32"}
    best = {rate: max(numbers["peaks"][rate]) for rate in ("gflop_per_s", "gb_per_s")}
    assert all(len(numbers["peaks"][rate]) >= 2 and best[rate] > 0 for rate in best)
    assert set(numbers["work"]) == set(numbers["rates"]) == set(numbers["medians"])
    for key, work in numbers["work"].items():
        rates, seconds = numbers["rates"][key], numbers["medians"][key]
        assert work["source"] == ("by a formula" if "recurrent" in key else "counted")
        assert rates["gflop_per_s"] == pytest.approx(1e-9 * work["flop"] / seconds, rel=1e-4)
        assert rates["gb_per_s"] == pytest.approx(1e-9 * work["bytes"] / seconds, rel=1e-4)
        if name != "table9":  # whose shares are of a cell's own peaks
            share = rates["gflop_per_s"] / best["gflop_per_s"]
            assert rates["of_peak_gemm"] == pytest.approx(share, rel=1e-4)
    if name == "causal":
        for key in ("linear@64", "linear_encoded@128"):
            ratio = numbers["ratios"][key.replace("@", "/peak_gemm@")]
            assert ratio == numbers["rates"][key]["of_peak_gemm"]


@pytest.mark.slow
def test_what_cannot_be_counted_keeps_its_times(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such formula")

    monkeypatch.setattr("benchmarks.limits._flop", fail)
    assert run(tmp_path, "--only", "causal") == 0
    numbers = result(tmp_path, "causal")["found"]
    unknown = {"flop": None, "bytes": None, "source": "RuntimeError: no such formula"}
    assert numbers["work"]["linear@64"] == unknown and numbers["medians"]["linear@64"] > 0
    assert set(numbers["rates"]["linear@64"].values()) == {None}
    assert numbers["work"]["recurrent@64"]["flop"] > 0
    assert not any("peak_gemm" in key for key in numbers["ratios"])
    assert "RuntimeError: no such formula." in (results(tmp_path) / "cpu.md").read_text()


@pytest.mark.slow
def test_what_is_done_is_skipped_until_forced_or_changed(tmp_path, capsys):
    assert run(tmp_path, "--only", "scaling") == 0
    first = result(tmp_path, "scaling")
    assert run(tmp_path, "--only", "scaling") == 0
    assert "done before" in capsys.readouterr().out
    assert result(tmp_path, "scaling") == first
    path = results(tmp_path) / "cpu" / "scaling.json"
    outdated, cut_off = json.dumps({**first, "source": "other"}), path.read_text()[:100]
    for text in (outdated, cut_off):
        path.write_text(text)
        assert run(tmp_path, "--only", "scaling") == 0
        assert "done before" not in capsys.readouterr().out
        assert result(tmp_path, "scaling")["source"] == first["source"]
    assert run(tmp_path, "--only", "scaling", "--force") == 0
    assert "done before" not in capsys.readouterr().out


def test_a_failing_benchmark_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("benchmarks.runner.peak_bytes", fail)
    assert run(tmp_path, "--only", "memory,decoding") == 1
    assert "memory: RuntimeError: no such luck" in capsys.readouterr().err
    assert result(tmp_path, "decoding")
    assert not (results(tmp_path) / "cpu" / "memory.json").exists()


def test_each_machine_has_a_folder(monkeypatch):
    """One that is not named has that of its processor, and Table 9 as the project's page."""
    model = {"cpu": "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", "gpus": ["NVIDIA H200"]}
    monkeypatch.setattr(
        "fairseq_plugins.common.provenance.hardware",
        lambda gpus: {**model, "gpus": model["gpus"][:gpus]},
    )
    output = Path("output")
    folders = {
        ("cpu", None): "intel-xeon-gold-6248-cpu-2-50ghz",
        ("gpu", None): "nvidia-h200",
        ("cpu", "mine"): "mine",
    }
    for (device, machine), folder in folders.items():
        context = Context(device, output, machine=machine)
        assert context.results == output / "benchmarks" / "results" / folder
        table9 = context.results if machine else output / "results"
        assert context.table9 == table9 / "table9" / device


@pytest.mark.parametrize("name", ["", "../elsewhere", "a/b", "."])
def test_a_machine_is_named_by_a_word(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        program.main(["--machine", name])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "`--machine` must be letters, digits, dots" in said and f"but is {name!r}" in said


def test_unknown_name_gives_the_nearest(capsys):
    assert program.main(["--only", "decodin"]) == 2
    assert "Did you mean 'decoding'?" in capsys.readouterr().err


@pytest.mark.slow
def test_a_peer_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        preparation, "version_of", lambda name: None if name == "tokenizers" else "1"
    )
    assert run(tmp_path, "--only", "preparation") == 0
    found = result(tmp_path, "preparation")["found"]
    page = (results(tmp_path) / "cpu.md").read_text()
    assert "`learn tokenizers` is left out: tokenizers is not installed" in page
    assert "| speed | lines per second |" in page and "| `learn subword-nmt` |" in page
    why = "tokenizers is not installed"
    assert found["skipped"] == {"learn tokenizers": why, "apply tokenizers": why}
    assert set(found["ratios"]) == {
        "tokenise ours/sacremoses",
        "learn ours/subword-nmt",
        "apply ours/subword-nmt",
    }


def test_a_preparation_with_another_outcome_is_not_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preparation, "learn_merges", lambda counts, merges: [("e", "n")])
    assert run(tmp_path, "--only", "preparation") == 1
    assert "learn: ours does not give what subword-nmt gives" in capsys.readouterr().err
    assert not (results(tmp_path) / "cpu" / "preparation.json").exists()


def test_a_benchmark_of_the_cpu_alone_is_refused_elsewhere(capsys):
    assert "preparation" in check_names(None, "cpu")
    assert "preparation" not in check_names(None, "gpu")
    assert "paper_speed" not in check_names(None, "cpu")
    assert "paper_speed" in check_names(None, "cpu", quick=True)
    assert program.main(["--device", "gpu", "--only", "preparation"]) == 2
    assert "`--device gpu`, but has 'preparation'" in capsys.readouterr().err


def test_list(capsys):
    assert program.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)


@pytest.mark.parametrize("main", [program.main, table9.main])
def test_a_gpu_run_without_a_gpu_is_refused(main, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["--device", "gpu", "--output", str(tmp_path)]) == 2
    assert "needs a GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_table9_cells(tmp_path, capsys):
    words = ["--quick", "--output", str(tmp_path), "--rows", "rope,t5", "--attention", "linear"]
    assert table9.main(words) == 0
    folder = tmp_path / "results" / "table9"
    assert [path.name for path in (folder / "cpu").iterdir()] == ["rope-linear.json"]
    said = capsys.readouterr().out
    assert "t5, linear: - (linear attention cannot use" in said
    log = tmp_path / "table9-toy.slurm-9.log"
    log.write_text(said)
    assert logs.names_page(log)  # as `fairseq-pe status` reads it
    cell = json.loads((folder / "cpu" / "rope-linear.json").read_text())
    assert tuple(cell) == CELL
    assert cell["table"] == "table9" and cell["scale"] == "cpu"
    metrics = cell["metrics"]
    assert metrics["step_seconds"] > 0 and metrics["relative_speed"] > 0
    assert metrics["work"]["flop"] > 0 and metrics["rates"]["of_peak_gemm"] > 0
    assert len(metrics["peaks"]["gflop_per_s"]) == len(metrics["peaks"]["gb_per_s"]) == 2
    assert "| RoPE (`rope`) | 0.97 |" in (folder / "cpu.md").read_text()
    assert table9.main(words) == 0
    assert "rope, linear: done before" in capsys.readouterr().out


def test_table9_dry_run_does_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(table9_cells, "measure_cell", None)
    words = ["--dry-run", "--output", str(tmp_path), "--rows", "base+rope"]
    assert table9.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "width=512" in lines[0]
    assert [line.endswith("to be measured") for line in lines[1:]] == [True, True]
    assert "base+rope-vanilla.json" in lines[2]
    assert not list(tmp_path.iterdir())


def test_table9_unknown_row_gives_the_nearest(capsys):
    assert table9.main(["--rows", "lrpe_typ2"]) == 2
    assert "Did you mean 'lrpe_type2'?" in capsys.readouterr().err
