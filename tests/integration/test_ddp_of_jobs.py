"""Two processes with the backend of a cluster train as one does, also where they are stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_plugins.runner.interruption import STOP
from tests.integration.helpers import (
    REPOSITORY,
    fairseq_hydra_train,
    load_checkpoint,
    saving_to,
    write_yaml,
)
from tests.integration.test_roberta import MASKED_LM
from tests.integration.test_translation import TRANSLATION

UPDATES = 6
PROGRAM = Path(__file__).with_name("ddp_on_cpu.py")
TOGETHER = {
    "checkpoint.load_checkpoint_on_all_dp_ranks": True,  # as in configs/recipe/folders.yaml
    "distributed_training.distributed_backend": "gloo",
    "distributed_training.ddp_backend": "pytorch_ddp",
    "distributed_training.distributed_init_method": "env://",
    "distributed_training.distributed_no_spawn": True,
    "distributed_training.distributed_rank": "${oc.env:RANK}",
}
SETTINGS = {
    "optimization.max_update": UPDATES,
    "checkpoint.save_interval_updates": 4,
    "dataset.update_epoch_batch_itr": True,
}


def in_two(folder: Path, settings: dict, *, nodes: int = 1) -> None:
    """Train in two processes, or in one on each of two nodes, which must end well."""
    in_several(2, folder, settings, nodes=nodes)


def in_several(processes: int, folder: Path, settings: dict, *, nodes: int = 1) -> None:
    """Train in so many processes, on so many nodes, which must end well."""
    together = {**TOGETHER, "distributed_training.distributed_world_size": processes}
    config = write_yaml(folder.with_name(f"{folder.name}.yaml"), {**settings, **together})
    end = ["--standalone"] if nodes == 1 else [
        "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-id={folder.name}",
        f"--rdzv-endpoint=localhost:{29_700 + os.getpid() % 200}",
    ]  # fmt: skip
    command = [
        *(sys.executable, "-m", "torch.distributed.run", *end),
        *(f"--nproc_per_node={processes // nodes}", str(PROGRAM)),
        *("--config-dir", str(config.parent), "--config-name", config.stem),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    agents = [
        subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for _ in range(nodes)
    ]  # fmt: skip
    for agent in agents:
        try:
            output, _ = agent.communicate(timeout=250)
        except subprocess.TimeoutExpired:
            for each in agents:
                each.terminate()
            pytest.fail(f"{processes} processes did not end:\n{agent.communicate()[0]}")
        assert agent.returncode == 0, output


def in_one(folder: Path, settings: dict, *, batches: int = 2) -> None:
    """Train in one process that gathers the gradients of so many batches."""
    fairseq_hydra_train(folder.parent, {**settings, "optimization.update_freq": [batches]})


def updates(folder: Path) -> int:
    return load_checkpoint(folder / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"]


def assert_same_model(one: Path, other: Path) -> None:
    models = [load_checkpoint(path / "checkpoint_last.pt")["model"] for path in (one, other)]
    assert updates(one) == updates(other) == UPDATES
    for key, value in models[0].items():
        # By their norm: Adam makes of rounding in a gradient near zero a step of any size.
        distance = torch.linalg.vector_norm(models[1][key] - value)
        assert distance <= 1e-5 * torch.linalg.vector_norm(value) + 1e-6, key


def settings_of(folder: Path, data: Path, criterion: str = "cross_entropy", **model: str) -> dict:
    more = {"checkpoint.save_dir": folder, "criterion._name": criterion}
    return {**saving_to(folder, data, **model), **SETTINGS, **more}


LRPE = {"attention_type": "linear", "position_encoding": "lrpe_type3"}


@pytest.mark.slow
def test_two_that_were_stopped_end_as_one(data: Path, tmp_path: Path) -> None:
    criterion = "blockwise_cross_entropy"
    two, one = tmp_path / "two", tmp_path / "one"
    two.mkdir()
    (two / STOP).touch()
    in_two(two, settings_of(two, data, criterion, **LRPE))
    assert updates(two) == 1, "both stopped after the same update, and it is saved"
    (two / STOP).unlink()
    in_two(two, settings_of(two, data, criterion, **LRPE))
    in_one(one, settings_of(one, data, **LRPE))
    assert_same_model(two, one)


@pytest.mark.slow
def test_two_nodes_train_as_one_process(data: Path, tmp_path: Path) -> None:
    model = {"attention_type": "vanilla", "position_encoding": "t5+rope"}
    two, one = tmp_path / "nodes", tmp_path / "one"
    in_two(two, settings_of(two, data, **model), nodes=2)
    in_one(one, settings_of(one, data, **model))
    assert_same_model(two, one)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["masked language model", "translation"])
def test_the_other_families_train_in_two_as_in_one(
    family: str, data: Path, pairs: Path, tmp_path: Path
) -> None:
    if family == "translation":
        settings, folder = {**TRANSLATION, "model.encoder_attention_type": "linear"}, pairs
    else:
        settings, folder = {**MASKED_LM, "model.attention_type": "linear"}, data
    settings |= {**SETTINGS, "model.position_encoding": "lrpe_type3", "task.data": folder}
    two, one = tmp_path / "two", tmp_path / "one"
    in_two(two, {**settings, "checkpoint.save_dir": two})
    in_one(one, {**settings, "checkpoint.save_dir": one})
    assert_same_model(two, one)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 4])
def test_what_two_left_another_number_takes_up(data: Path, tmp_path: Path, number: int) -> None:
    """With the batches that come next, of which an update has four."""
    left, one = tmp_path / "left", tmp_path / "one"
    left.mkdir()
    (left / STOP).touch()
    settings = settings_of(left, data, **LRPE)
    in_several(2, left, {**settings, "optimization.update_freq": [2]})
    assert updates(left) == 1
    (left / STOP).unlink()
    in_several(number, left, {**settings, "optimization.update_freq": [4 // number]})
    in_one(one, settings_of(one, data, **LRPE), batches=4)
    assert_same_model(left, one)
