"""The curve of preparing: what is measured, and where it leads."""

import json
import time

import pytest

from benchmarks import preparation_curve
from benchmarks.preparation_curve import (
    MEASURED,
    PHASES,
    extrapolate,
    measure,
    summarise,
)
from fairseq_plugins.common.errors import WorkError

MIB = 2**20


def test_a_line_and_a_power_are_followed():
    sizes = [10, 20, 40, 80]
    line = extrapolate(sizes, [5 + 3 * n for n in sizes], 1000)
    assert line["line"] == pytest.approx(3005, rel=1e-6)
    power = extrapolate(sizes, [2 * n**0.5 for n in sizes], 1000)
    assert power["power"] == pytest.approx(2 * 1000**0.5, rel=1e-3)
    assert power["exponent"] == pytest.approx(0.5, abs=1e-3)
    assert power["line"] > power["power"]  # the upper bound where work grows slower


def test_nothing_is_less_for_a_larger_text():
    assert extrapolate([10, 20], [5.0, 4.0], 1000)["line"] == 5.0


def test_times_are_summed_and_memory_is_not():
    costs = {n: dict(zip(MEASURED, (2.0 * n, n, 100.0 * n), strict=True)) for n in (10, 20)}
    sizes = [{"words": n, "costs": dict.fromkeys(PHASES, cost)} for n, cost in costs.items()]
    found = summarise(sizes, 100)
    assert found["learn"]["cpu_seconds"]["line"] == pytest.approx(100)
    assert found["all"]["wall_seconds"]["line"] == pytest.approx(200 * len(PHASES))
    assert found["all"]["peak_mib"]["power"] == pytest.approx(10_000, rel=1e-3)


def test_what_work_takes_is_seen_from_outside():
    def calculate():
        held = bytearray(b"x" * (200 * MIB))
        end = time.process_time() + 0.3
        while time.process_time() < end:
            held[0] += 0

    def sleep():
        time.sleep(0.3)

    busy, idle = measure(calculate), measure(sleep)
    assert busy["cpu_seconds"] >= 0.3 > idle["cpu_seconds"]
    assert idle["wall_seconds"] >= 0.3
    assert busy["peak_mib"] > idle["peak_mib"] + 150


def test_work_that_fails_is_no_measurement():
    def fail():
        raise SystemExit(3)

    with pytest.raises(WorkError, match=r"status 3"):
        measure(fail)


@pytest.fixture
def text(tmp_path):
    """Few pairs of sentences, as a folder."""
    folder = tmp_path / "text"
    folder.mkdir()
    for name, lines in (("train", 40), ("valid", 3), ("test", 3)):
        for language in ("en", "de"):
            content = "".join(f"{language} sentence {i}, of many.\n" for i in range(lines))
            (folder / f"{name}.{language}").write_text(content)
    return folder


@pytest.mark.slow
def test_a_small_text(text, tmp_path, capsys):
    words = ["--pairs", "20,40", "--merges", "20", "--machine", "here", "--output", str(tmp_path)]
    assert preparation_curve.main([str(text), *words]) == 0
    path = tmp_path / "benchmarks" / "results" / "here" / "cpu" / "preparation_curve.json"
    found = json.loads(path.read_text())
    assert list(found["measured"]) == ["20", "40"]
    assert found["measured"]["40"]["words"] == 40 * 2 * 5
    for size in found["measured"].values():
        cost = size["costs"]
        assert list(cost) == list(PHASES)
        assert all(cost[phase]["wall_seconds"] > 0 for phase in PHASES)
        # A phase of a tenth of a second can end before its second sample of memory.
        assert max(cost[phase]["peak_mib"] for phase in PHASES) > 0
    assert str(tmp_path) not in path.read_text()
    assert "226,000,000 words by a line" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pairs", "20"], "--pairs must be two or more different numbers, but is 20"),
        (["--pairs", "20,many"], "from 1 on joined by commas, but is '20,many'"),
        (["--pairs", "20,50"], "at most the 40 pairs of"),
        (["--merges", "10"], "--merges must be at least 16, but is 10"),
        (["--src", "fr"], "does not hold train.fr"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, message, text, tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    try:
        status = preparation_curve.main([str(text), "--output", str(tmp_path), *words])
    except SystemExit as stopped:  # by the parser
        status = stopped.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
