"""A row that is killed goes on, past a checkpoint that was cut off, to the same result."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.integration.helpers import REPOSITORY

UPDATES, INTERVAL = 150, 10
COMMAND = (
    "import logging, sys; from pathlib import Path; logging.disable(logging.INFO); "
    "from fairseq_plugins.cli.train_table import main; "
    "sys.exit(main(sys.argv[2:], Path(sys.argv[1])))"
)


@pytest.fixture
def root(tmp_path: Path, data: Path) -> Path:
    """A repository whose scale toy saves often, with the tiny corpus as its data."""
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    scale = tmp_path / "configs" / "scale" / "lm" / "toy.yaml"
    content = yaml.safe_load(scale.read_text())
    content["optimization"]["max_update"] = UPDATES
    # Several updates to an epoch of the tiny corpus: fairseq saves on the way, not at its end.
    content["dataset"]["batch_size"] = 2
    content["checkpoint"]["save_interval_updates"] = INTERVAL
    scale.write_text("# @package _global_\n" + yaml.safe_dump(content))
    (tmp_path / "fairseq_plugins").symlink_to(REPOSITORY / "fairseq_plugins")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy").symlink_to(data)
    return tmp_path


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(root), "table2", "--scale", "toy", *words],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)  # three runs of three commands
def test_killed_and_cut_off(root: Path) -> None:
    row = ("--rows", "lrpe_type2", "--attention", "linear", "--seeds")
    folder = root / "checkpoints" / "table2" / "toy" / "lrpe_type2-linear-s1"
    result = root / "results" / "table2" / "toy" / "lrpe_type2-linear-s1.json"
    process = start(root, *row, "1")
    deadline = time.monotonic() + 120
    while len(list(folder.glob("checkpoint_*_*.pt"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not result.exists()
    last = folder / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:-1000])
    again = start(root, *row, "1")
    output, _ = again.communicate(timeout=600)
    assert again.returncode == 0, output
    assert "checkpoint_last.pt is damaged" in output
    assert last.with_name("checkpoint_last.pt.corrupt").exists()
    restarted = re.search(r"Loaded checkpoint .*\(epoch \d+ @ (\d+) updates\)", _log(folder))
    assert restarted, _log(folder)
    assert 0 < int(restarted[1]) < UPDATES
    interrupted = json.loads(result.read_text())["metrics"]
    result.unlink()
    shutil.rmtree(folder)
    whole = start(root, *row, "1")
    output, _ = whole.communicate(timeout=600)
    assert whole.returncode == 0, output
    uninterrupted = json.loads(result.read_text())["metrics"]
    for metric in ("valid_loss", "test_loss", "updates"):
        assert interrupted[metric] == uninterrupted[metric]


def _log(folder: Path) -> str:
    return (folder / "train.log").read_text()
