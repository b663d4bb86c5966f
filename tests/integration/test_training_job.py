"""A training that a job may end at any moment: when it saves, and that results stay the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.logging import progress_bar

from fairseq_plugins.runner import training_job
from fairseq_plugins.runner.interruption import STOP
from tests.integration.helpers import (
    REPOSITORY,
    fairseq_hydra_train,
    load_checkpoint,
    saving_to,
    write_yaml,
)

SETTINGS = {
    "optimization.max_update": 36,  # over the end of an epoch
    "common.log_interval": 5,
    "checkpoint.save_interval_updates": 10,
    "dataset.disable_validation": False,
    "dataset.update_epoch_batch_itr": True,
}


def updates(folder: Path, name: str = "checkpoint_last.pt") -> int:
    return load_checkpoint(folder / name)["optimizer_history"][-1]["num_updates"]


def train(
    folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool = False
) -> None:
    """As `python -m` has it, in this process."""
    config = write_yaml(folder.parent / "tiny_lm.yaml", {**saving_to(folder, data), **SETTINGS})
    words = ["training_job", "--config-dir", str(config.parent), "--config-name", config.stem]
    monkeypatch.setattr(sys, "argv", words)
    if is_stopped:
        with pytest.raises(SystemExit) as stop:
            training_job.main()
        assert stop.value.code == 0
    else:
        training_job.main()


@pytest.fixture
def whole(tmp_path: Path, data: Path) -> Path:
    """The folder of fairseq's own training, from the beginning to the end."""
    fairseq_hydra_train(tmp_path, {**saving_to(tmp_path / "whole", data), **SETTINGS})
    return tmp_path / "whole"


@pytest.mark.slow
def test_stopped_after_every_few_updates_it_ends_as_without(
    whole: Path, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stopped"
    folder.mkdir()
    (folder / STOP).touch()
    monkeypatch.setattr(training_job, "_CHECK_SECONDS", 0.0)
    seen = []
    while not seen or seen[-1] + 8 < SETTINGS["optimization.max_update"]:
        train(folder, data, monkeypatch, is_stopped=True)
        seen.append(updates(folder))
        # Seven updates at least, so that there are few stretches, by a second look.
        monkeypatch.setattr(training_job.SavingTrainer, "_is_asked_to_stop", after(seen[-1] + 7))
    (folder / STOP).unlink()
    monkeypatch.undo()
    train(folder, data, monkeypatch)
    assert seen[0] == 1 and sorted(set(seen)) == seen
    assert not any(update % 5 == 0 for update in seen), "where fairseq logs and saves itself"
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        ours, theirs = load_checkpoint(folder / name), load_checkpoint(whole / name)
        assert updates(folder, name) == updates(whole, name)
        for key, value in theirs["model"].items():
            torch.testing.assert_close(ours["model"][key], value, rtol=0, atol=0)
        for key in ("best", "val_loss", "train_iterator"):
            assert ours["extra_state"][key] == theirs["extra_state"][key]
    assert {p.name for p in folder.glob("*.pt")} == {p.name for p in whole.glob("*.pt")}


@pytest.mark.slow
def test_a_curve_does_not_tell_that_a_training_was_killed_between_two_epochs(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "common.log_interval", 7)
    curve: dict[int, float] = {}

    def note(self, stats, tag=None, step=None):
        if tag == "train_inner":
            curve[step] = stats["loss"]

    def end(trainer: training_job.SavingTrainer, epoch: int) -> None:
        if epoch > 1:
            raise KeyboardInterrupt
        begin(trainer, epoch)

    monkeypatch.setattr(progress_bar.JsonProgressBar, "log", note)
    train(tmp_path / "whole", data, monkeypatch)
    whole = dict(curve)
    begin = training_job.SavingTrainer.begin_epoch
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(training_job.SavingTrainer, "begin_epoch", end)
        train(tmp_path / "killed", data, monkeypatch)
    curve.clear()
    assert updates(tmp_path / "killed") % 7
    train(tmp_path / "killed", data, monkeypatch)
    assert curve and curve.items() <= whole.items()


def after(update: int):
    return lambda trainer: trainer.get_num_updates() >= update


def test_saves_as_often_as_it_says(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = training_job.checkpoint_utils.save_checkpoint

    def note(cfg, trainer, batches, loss):
        saved.append(trainer.get_num_updates())
        assert loss is None  # fairseq's own saves go another way
        return save(cfg, trainer, batches, loss)

    own = type(sys)("own")
    own.save_checkpoint = note
    monkeypatch.setattr(training_job, "checkpoint_utils", own)
    monkeypatch.setattr(training_job, "_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(training_job, "SAVE_SECONDS", 1e9)
    train(tmp_path / "never", data, monkeypatch)
    assert saved == []
    monkeypatch.setattr(training_job, "SAVE_SECONDS", 0.0)
    train(tmp_path / "always", data, monkeypatch)
    # All but fairseq's own moments: its intervals, and the end of the epoch.
    assert not {n for n in saved if n % 5 == 0}
    last = SETTINGS["optimization.max_update"]
    assert len({n for n in range(1, last) if n % 5} - set(saved)) <= 1


@pytest.mark.parametrize(
    ("world", "nodes", "visible", "is_fine"),
    [(1, 1, 1, True), (1, 1, 8, True), (8, 1, 8, True), (16, 2, 8, True), (1, 1, 0, False),
     (8, 1, 7, False), (4, 1, 8, False), (16, 2, 7, False), (8, 1, 0, False)],
)  # fmt: skip
def test_other_gpus_than_asked_for_are_refused(
    world: int, nodes: int, visible: int, is_fine: bool
) -> None:
    if is_fine:
        training_job.check_gpus(world, nodes, visible)
        return
    message = f"must have {world // nodes} GPUs, but PyTorch.* {visible}"
    with pytest.raises(SystemExit, match=message):
        training_job.check_gpus(world, nodes, visible)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")
def test_without_its_gpu_a_job_ends_at_once(tmp_path: Path, data: Path) -> None:
    settings = {**saving_to(tmp_path / "checkpoints", data), **SETTINGS, "common.cpu": False}
    config = write_yaml(tmp_path / "tiny_lm.yaml", settings)
    command = [sys.executable, "-m", "fairseq_plugins.runner.training_job"]
    done = subprocess.run(
        [*command, "--config-dir", str(config.parent), "--config-name", config.stem],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "must have 1 GPUs, but PyTorch finds 0 there" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "checkpoints").exists()
