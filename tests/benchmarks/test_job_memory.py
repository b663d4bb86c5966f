"""The memory of a job, seen from outside, and what cannot be measured."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from benchmarks import job_memory
from benchmarks.job_memory import MEASURED, main, make_copy, measure
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.memory import PeakOfChildren, proportional, tree

MIB = 2**20
# A process whose child, which a thread of it starts, holds memory for a while.
GRANDCHILD = f"held = b'x' * (200 * {MIB}); import time; time.sleep(4)"
PARENT = f"""
import subprocess, sys, threading
start = threading.Thread(target=lambda: subprocess.run([sys.executable, "-c", {GRANDCHILD!r}]))
start.start()
start.join()
"""


def test_all_that_a_process_started_counts() -> None:
    with PeakOfChildren() as peak:
        subprocess.run([sys.executable, "-c", PARENT], check=True)
    assert 200 * MIB < peak.bytes < 300 * MIB and peak.samples > 4


def test_what_processes_share_counts_once() -> None:
    """A fork shares what its parent holds."""
    held = f"held = b'x' * (200 * {MIB})"
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, time; {held}; os.fork(); time.sleep(60)"]
    )
    try:
        end = time.monotonic() + 30
        while len(tree(process.pid)) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        both = tree(process.pid)
        assert 200 * MIB < sum(map(proportional, both)) < 300 * MIB
    finally:
        for pid in reversed(tree(process.pid)):
            subprocess.run(["kill", "-9", str(pid)], check=True)
        process.wait()


def test_a_process_that_has_ended_holds_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert proportional(process.pid) == 0 and tree(process.pid) == [process.pid]


def test_a_copy_has_short_trainings_and_the_same_data(tmp_path: Path) -> None:
    make_copy(tmp_path, 8)
    budgets = [
        (options.get("optimization", {}), options.get("lr_scheduler", {}))
        for path in (tmp_path / "configs").rglob("*.yaml")
        if (options := yaml.safe_load(path.read_text()))
    ]
    assert {o["max_update"] for o, _ in budgets if "max_update" in o} == {8}
    assert max(s["warmup_updates"] for _, s in budgets if "warmup_updates" in s) == 4
    assert (tmp_path / "data" / "README.md").is_file()
    assert (tmp_path / "scripts" / "table2.sh").is_file()


def test_a_job_is_measured_with_what_it_needs() -> None:
    words = f"import os; assert os.path.isdir('configs'); {GRANDCHILD}"
    found = measure([sys.executable, "-c", words], most=5)
    assert 200 < found["found"]["peak_mib"] < 300


def test_a_job_that_fails_is_no_measurement() -> None:
    with pytest.raises(WorkError, match=r"status 3:\nno such luck"):
        measure([sys.executable, "-c", "print('no such luck'); raise SystemExit(3)"], most=5)


def test_missing_data_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRSEQ_PE_DATA", str(job_memory.ROOT / "data" / "none"))
    assert main(["--only", "mt", "--scale", "toy", "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "mt: the data folder data/none/toy-mt lacks data.json" in said and said.count("\n") == 1
    assert "scripts/prepare_toy_mt.sh makes it" in said
    assert not [*tmp_path.iterdir()]


def test_a_family_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "lm,vision"])
    assert f"`--only` must be among {', '.join(MEASURED)}, but has 'vision'" in (
        capsys.readouterr().err
    )


def test_what_is_found_is_written_with_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_memory, "measure", lambda job, most: {"found": {"peak_mib": most}})
    monkeypatch.setattr(
        "fairseq_plugins.experiments.planned.PlannedRun.missing_data", lambda *_: []
    )
    words = ["--scale", "toy", "--only", "lm", "--updates", "7", "--machine", "here"]
    assert main([*words, "--output", str(tmp_path)]) == 0
    path = tmp_path / "benchmarks" / "results" / "here" / "cpu" / "job_memory" / "lm-toy.json"
    found = json.loads(path.read_text())
    assert found["found"]["peak_mib"] == 7
    assert found["job"][0] == "scripts/table2.sh" and "--srun" not in found["job"]
    assert {"hardware", "versions", "commit", "command", "load_average"} <= found.keys()
    assert str(tmp_path) not in path.read_text()
