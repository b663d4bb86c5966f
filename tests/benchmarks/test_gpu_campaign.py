"""The campaign: a budget, parts that are done once, failures that stop nothing."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu_campaign, paper_speed, record
from benchmarks.catalog import BENCHMARKS
from benchmarks.gpu_campaign import Campaign, Part, parts

AROUND = {"source": "1", "versions": {"torch": "2"}, "hardware": {"gpus": ["H200"]}}


@pytest.fixture(autouse=True)
def _known_circumstances(monkeypatch):
    monkeypatch.setattr(record, "circumstances", lambda gpus: AROUND)


def part(name, code="", minutes=1.0):
    return Part(name, f"does {name}", (sys.executable, "-c", code or f"print({name!r})"), minutes)


def run(folder, some_parts, minutes=10.0, **more):
    """Exit status, what was said, and states by name."""
    said = []
    session = Campaign(folder, some_parts, minutes, say=said.append, **more)
    status = session.run()
    return status, "\n".join(said), {p.name: session.state(p).get("status") for p in some_parts}


def test_all_parts_in_their_order_and_none_twice(tmp_path):
    trace = tmp_path / "trace"
    code = "open({!r}, 'a').write({!r})"
    some = [part(name, code.format(str(trace), name)) for name in "abc"]
    status, said, states = run(tmp_path, some)
    assert status == 0 and set(states.values()) == {"done"} and trace.read_text() == "abc"
    assert run(tmp_path, some)[0] == 0 and trace.read_text() == "abc"
    assert "| a" in said and "done" in said
    assert run(tmp_path, some, force=True)[0] == 0 and trace.read_text() == "abcabc"
    state = json.loads((tmp_path / "states" / "a.json").read_text())
    assert state["hardware"] == AROUND["hardware"] and state["exit_status"] == 0
    assert state["command"][0] == "python" and state["commit"] and state["finished_at"]


def test_another_source_machine_or_size_is_another_measurement(tmp_path, monkeypatch):
    some = [part("a")]
    assert run(tmp_path, some)[0] == 0
    assert "done before" in run(tmp_path, some)[1]
    assert "done before" not in run(tmp_path, some, quick=True)[1]
    assert "done before" in run(tmp_path, some, quick=True)[1]
    monkeypatch.setattr(record, "circumstances", lambda gpus: {**AROUND, "source": "2"})
    assert "done before" not in run(tmp_path, some, quick=True)[1]


def test_a_failure_is_shown_and_stops_nothing(tmp_path):
    code = "import sys; print('\\n'.join(map(str, range(99)))); sys.exit('no such luck')"
    some = [part("bad", code), part("good")]
    status, said, states = run(tmp_path, some)
    assert status == 1 and states == {"bad": "failed", "good": "done"}
    assert "| no such luck" in said and "| 98" in said and "| 50" not in said
    # Where it was mended, it alone is done again.
    mended = [part("bad"), part("good")]
    status, said, states = run(tmp_path, mended)
    assert status == 0 and states["bad"] == "done" and "good: done before" in said
    assert "luck" not in (tmp_path / "logs" / "bad.log").read_text()


def test_what_does_not_fit_is_left_and_what_does_is_done(tmp_path):
    some = [part("a", minutes=1), part("long", minutes=9), part("b", minutes=1)]
    status, said, states = run(tmp_path, some, minutes=5)
    assert status == 1 and states == {"a": "done", "long": None, "b": "done"}
    assert "long: not started, it takes 9.0 min and only 5.0 min are left" in said


def test_the_budget_counts_what_has_passed(tmp_path):
    some = [part("a", minutes=3)]
    began = time.monotonic() - 150.0
    session = Campaign(tmp_path, some, 5, say=lambda text: None, began=began)
    assert session.run() == 1 and session.state(some[0]) == {}
    assert session.minutes_left() == pytest.approx(2.5, abs=0.1)


def test_estimates_are_those_of_an_attempt_before(tmp_path):
    one = part("a", minutes=7)
    assert Campaign(tmp_path, [one], 5).estimate(one) == 7
    assert run(tmp_path, [one])[0] == 0
    session = Campaign(tmp_path, [one], 5)
    assert session.estimate(one) < 1
    assert Campaign(tmp_path, [one], 5, quick=True).estimate(one) == 7  # of another size


def test_a_part_that_outlasts_the_budget_is_ended(tmp_path):
    """It is known to take longer from then on."""
    some = [part("slow", "import time; print('began', flush=True); time.sleep(60)", minutes=0.01)]
    status, said, states = run(tmp_path, some, minutes=0.02)
    assert status == 1 and states == {"slow": "cut off"}
    assert "cut off; the end of" in said
    assert Campaign(tmp_path, some, 5).estimate(some[0]) > 0.02


def test_ctrl_c_ends_it_and_what_was_done_stays(tmp_path, monkeypatch):
    some = [part("a"), part("b"), part("c")]
    launch = gpu_campaign.ProcessLauncher.__call__

    def interrupted(self, command, *rest):
        if command == some[1].command:
            raise KeyboardInterrupt
        return launch(self, command, *rest)

    monkeypatch.setattr(gpu_campaign.ProcessLauncher, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, some)
    monkeypatch.undo()
    monkeypatch.setattr(record, "circumstances", lambda gpus: AROUND)
    status, said, states = run(tmp_path, some)
    assert status == 0 and set(states.values()) == {"done"}
    assert "a: done before" in said and "b: done before" not in said


def test_damaged_states_count_for_nothing(tmp_path):
    some = [part("a")]
    assert run(tmp_path, some)[0] == 0
    for text in ("", "[1]", '{"status": "done"}', '{"wall_seconds": "x", "quick": false}'):
        (tmp_path / "states" / "a.json").write_text(text)
        assert Campaign(tmp_path, some, 5).estimate(some[0]) == 1
        assert not Campaign(tmp_path, some, 5).is_done(some[0])


def test_the_parts_are_all_that_a_gpu_can_measure():
    found = {p.name: p for p in parts(Path("out"), quick=False, force=False)}
    benchmarks = {name for name, b in BENCHMARKS.items() if "gpu" in b.devices}
    assert set(found) == {"tests", *benchmarks} and "paper_speed" in benchmarks
    assert next(iter(found)) == "tests"
    assert all("gpu" in found[name].command for name in benchmarks)
    assert sum(p.minutes for p in found.values()) < 60
    quick = parts(Path("out"), quick=True, force=True)
    assert all("--quick" in p.command and "gpu" not in p.command for p in quick[1:])


def test_a_dry_run_does_nothing_and_needs_no_gpu(tmp_path, capsys):
    words = ["--output", str(tmp_path), "--minutes", "5"]
    assert gpu_campaign.main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "tests: about 4.0 min" in said and "-m gpu tests/gpu" in said
    assert "table9: not started, it takes 12.0 min and only 1.0 min are left" in said
    assert gpu_campaign.main([*words, "--list"]) == 0
    assert "LRPE, Table 9" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "`--minutes` must be above 0, but is 0"),
        (["--only", "table8"], "Did you mean 'table9'?"),
        ([], "needs a GPU"),
    ],
)
def test_what_cannot_be_done_is_refused(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu_campaign.main([*words, "--output", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_corpus_has_the_dictionary_that_is_asked_for(tmp_path):
    from fairseq.data import Dictionary, data_utils

    paper_speed.write_corpus(tmp_path, dictionary=300, tokens=2000)
    assert len(Dictionary.load(str(tmp_path / "dict.txt"))) == 300
    ids = list(data_utils.load_indexed_dataset(str(tmp_path / "train"), None))
    assert sum(len(line) for line in ids) == 2000
    assert min(line.min() for line in ids) == 4 and max(line.max() for line in ids) < 300


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_campaign_at_its_tiny_size(tmp_path, monkeypatch):
    monkeypatch.undo()
    words = ["--quick", "--minutes", "30", "--output", str(tmp_path)]
    assert gpu_campaign.main(words) == 0, [p.read_text() for p in tmp_path.glob("logs/*")]
    done = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("states/*.json")}
    assert {state["status"] for state in done.values()} == {"done"}
    assert set(done) == {p.name for p in parts(tmp_path, quick=True, force=False)}
    (path,) = tmp_path.glob("benchmarks/results/*/cpu/paper_speed.json")
    values = json.loads(path.read_text())["found"]["values"]
    assert all(values[f"{row}, tokens per second"] > 0 for row in paper_speed.ROWS)
    assert list(tmp_path.glob("benchmarks/results/*/cpu/cross_entropy.json"))
    assert (tmp_path / "results" / "table9" / "cpu.md").is_file()
    before = {path: os.stat(path).st_mtime_ns for path in tmp_path.glob("states/*.json")}
    assert gpu_campaign.main(words) == 0
    assert before == {path: os.stat(path).st_mtime_ns for path in before}
