"""Two processes under torchrun train as one process does with the same total batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.helpers import (
    REPOSITORY,
    fairseq_train,
    load_checkpoint,
    losses,
    saving_to,
    write_yaml,
)

UPDATES = 6

# All of them are needed: without the first each process trains alone, silently.
DISTRIBUTED = [
    "distributed_training.distributed_world_size=2",
    "distributed_training.distributed_backend=gloo",
    "distributed_training.ddp_backend=legacy_ddp",
    "distributed_training.distributed_init_method=env://",
    "distributed_training.distributed_no_spawn=true",
    "distributed_training.distributed_rank=${oc.env:RANK}",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "encoding", "criterion"),
    [
        ("vanilla", "lrpe_type3+t5", "cross_entropy"),
        ("linear", "lrpe_type3", "blockwise_cross_entropy"),
    ],
)
def test_same_loss_curve(
    attention: str, encoding: str, criterion: str, data: Path, tmp_path: Path
) -> None:
    """The one process has fairseq's criterion, whatever the two have."""
    model = {"attention_type": attention, "position_encoding": encoding}
    settings = {**saving_to(tmp_path / "two", data, **model), "optimization.max_update": UPDATES}
    in_two = {**settings, "criterion._name": criterion}
    output = _torchrun(write_yaml(tmp_path / "tiny_lm.yaml", in_two))
    for sign in ("training on 2 devices", "rank 0", "rank 1"):
        assert sign in output, output
    # fairseq deals its batches out to the processes in turn, so one process sees the same ones
    # when it gathers the gradients of two.
    one = {"checkpoint.save_dir": tmp_path / "one", "optimization.update_freq": [2]}
    fairseq_train({**settings, **one})
    expected = losses(tmp_path / "one")
    assert list(expected) == list(range(1, UPDATES + 1))
    assert losses(tmp_path / "two") == pytest.approx(expected, abs=1e-4)
    # Each of the two saw its half of the data only.
    batches = [
        load_checkpoint(tmp_path / run / "checkpoint_last.pt")["extra_state"]["train_iterator"]
        for run in ("one", "two")
    ]
    assert [state["iterations_in_epoch"] for state in batches] == [2 * UPDATES, UPDATES]


def _torchrun(config: Path) -> str:
    """``fairseq-hydra-train`` in two processes on CPU; what they printed."""
    folder = Path(sys.executable).parent
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"),
        *(str(folder / "fairseq-hydra-train"), "--config-dir", str(config.parent)),
        *("--config-name", config.stem, *DISTRIBUTED),
    ]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its workers, which would outlive a kill
        output, _ = process.communicate()
        pytest.fail(f"two processes did not end within 180 s:\n{output}")
    assert process.returncode == 0, output
    return output
