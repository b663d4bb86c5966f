"""Losses where people look at them: TensorBoard and Weights & Biases, without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.helpers import REPOSITORY, flags, saving_to

WANDB = REPOSITORY / ".venv" / "wandb"  # apart, since fairseq imports it wherever it finds it

# Project, name and updates with a loss of the run whose file is given.
READ = """
import json, sys
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

store, run, updates = DataStore(), [], []
store.open_for_scan(sys.argv[1])
while data := store.scan_data():
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.WhichOneof("record_type") == "run":
        run = [record.run.project, record.run.display_name]
    if "train_inner/loss" in {"/".join(i.nested_key) or i.key for i in record.history.item}:
        updates.append(record.history.step.num)
print(json.dumps([*run, updates]))
"""


def train(data: Path, folder: Path, option: str, value: str) -> None:
    """Three updates in a process of its own, which a tracker does not outlive."""
    save = folder / "checkpoints" / "rope-linear-s1"
    settings = saving_to(save, data, attention_type="linear", position_encoding="rope")
    python(folder, "-m", "fairseq_cli.train", *flags({**settings, option: value}))


def python(folder: Path, *words: str) -> str:
    """What Python prints, run where it finds Weights & Biases."""
    path = os.pathsep.join((str(REPOSITORY), str(WANDB)))
    environment = {**os.environ, "WANDB_MODE": "offline", "PYTHONPATH": path}
    words = (sys.executable, *words)
    done = subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


@pytest.mark.slow
def test_weights_and_biases_has_the_run_by_its_name(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, "common.wandb_project", "table2-mine")
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = json.loads(python(tmp_path, "-c", READ, str(path)))
    assert found == ["table2-mine", "rope-linear-s1", [1, 2, 3]]


@pytest.mark.slow
def test_tensorboard_has_the_curve(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, "common.tensorboard_logdir", "outputs/rope-linear-s1")
    assert [*tmp_path.glob("outputs/rope-linear-s1/train_inner/events.*")]
