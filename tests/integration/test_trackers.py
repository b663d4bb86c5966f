"""Losses where people look at them: TensorBoard and Weights & Biases, without a network."""

import os
import subprocess
import sys
from pathlib import Path

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

from tests.integration.helpers import flags, saving_to


def train(data: Path, folder: Path, option: str, value: str) -> None:
    """Three updates in a process of its own, which a tracker does not outlive."""
    save = folder / "checkpoints" / "rope-linear-s1"
    settings = saving_to(save, data, attention_type="linear", position_encoding="rope")
    subprocess.run(
        [sys.executable, "-m", "fairseq_cli.train", *flags({**settings, option: value})],
        cwd=folder,
        env={**os.environ, "WANDB_MODE": "offline", "PYTHONPATH": os.getcwd()},
        check=True,
        capture_output=True,
    )


def read_run(path: Path) -> tuple[str, str, set[int]]:
    """Project, name and the updates at which a run of Weights & Biases has a loss."""
    store = DataStore()
    store.open_for_scan(str(path))
    project = name = ""
    updates = set()
    while data := store.scan_data():
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            project, name = record.run.project, record.run.display_name
        logged = {"/".join(item.nested_key) or item.key for item in record.history.item}
        if "train_inner/loss" in logged:
            updates.add(record.history.step.num)
    return project, name, updates


def test_weights_and_biases_has_the_run_by_its_name(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, "common.wandb_project", "table2-mine")
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert read_run(path) == ("table2-mine", "rope-linear-s1", {1, 2, 3})


def test_tensorboard_has_the_curve(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, "common.tensorboard_logdir", "outputs/rope-linear-s1")
    assert [*tmp_path.glob("outputs/rope-linear-s1/train_inner/events.*")]
