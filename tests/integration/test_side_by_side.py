"""A real table with rows side by side: its numbers, and Ctrl-C in the middle of it."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration import toy_repository as toy

# Short, and saving so often that Ctrl-C finds a checkpoint.
BRIEF = {
    "optimization": {"max_update": 40},
    "lr_scheduler": {"warmup_updates": 5},
    "checkpoint": {"save_interval_updates": 10},
}
TIMED = {"train_seconds", "tokens_per_second"}
WORDS = ("fairseq_plugins", "table", "table2", "--scale", "toy", "--rows",
         "rope,lrpe_type2,none", "--attention", "linear", "--jobs")  # fmt: skip


def metrics(root: Path) -> dict[str, dict[str, Any]]:
    """Result -> its metrics without times, to the last bit."""
    found = {}
    for path in sorted((root / "results/table2/toy").glob("*.json")):
        result = json.loads(path.read_text())
        assert result["hardware"]["threads"] == 1
        numbers = result["metrics"]
        found[path.name] = {key: numbers[key] for key in numbers.keys() - TIMED}
    return found


def set_aside(root: Path, name: str) -> None:
    """Begin again; what was made stays below a folder of this name."""
    (root / name).mkdir()
    for folder in ("results", "checkpoints"):
        (root / folder).rename(root / name / folder)


def working_in(root: Path) -> list[str]:
    """The command lines of processes whose folder is this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cwd").resolve() == root:
                found.append(process.joinpath("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def wait_for_checkpoints(process: "subprocess.Popen[str]", root: Path, count: int) -> None:
    """Until so many runs have one."""
    end = time.monotonic() + 300
    while len(list(root.glob("checkpoints/table2/toy/*/checkpoint_last.pt"))) < count:
        assert time.monotonic() < end and process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow  # four starts of a table, each imports PyTorch and fairseq
@pytest.mark.timeout(1200)
def test_numbers_and_interruption(tmp_path: Path) -> None:
    root = toy.make_repository(tmp_path.resolve(), {"lm/toy.yaml": BRIEF}, (toy.LM,))
    toy.run(root, *WORDS, "1")
    expected = metrics(root)
    assert len(expected) == 3
    set_aside(root, "alone")
    output = toy.run(root, *WORDS, "2")
    assert metrics(root) == expected
    lines = output.splitlines()
    begun = [next(i for i, s in enumerate(lines) if f"{row}-linear-s1: training" in s)
             for row in ("rope", "lrpe_type2")]  # fmt: skip
    ended = [next(i for i, s in enumerate(lines) if f"{row}-linear-s1: done" in s)
             for row in ("rope", "lrpe_type2")]  # fmt: skip
    assert max(begun) < min(ended)
    set_aside(root, "beside")

    process = toy.start(root, *WORDS, "2")
    wait_for_checkpoints(process, root, 2)
    assert len(working_in(root)) >= 4  # the table, what is forked from, and two trainings
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped. The same command goes on from the last checkpoint." in output
    assert "Traceback" not in output
    assert working_in(root) == []
    output = toy.run(root, *WORDS, "2")
    for row in ("rope", "lrpe_type2"):
        assert any("resumed at" in s for s in output.splitlines() if s.startswith(f"{row}-"))
    assert metrics(root) == expected
