"""What is no checkpoint, or no longer one, is refused with its name; the rest is plain data."""

import errno
from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fairseq.criterions.sentence_prediction import SentencePredictionCriterion
from fairseq.logging import metrics

from fairseq_plugins.common.checkpoints import (
    DamagedCheckpoint,
    read_checkpoint,
    read_upgraded,
    weights_checksum,
)
from fairseq_plugins.common.errors import CheckpointError

STATE = {
    "model": {"w": torch.arange(512.0)},
    "cfg": {"model": Namespace(arch="roberta"), "task": {"data": "there"}},
    "optimizer_history": [{"lr_scheduler_state": {}, "num_updates": 5}],
    "extra_state": {"train_iterator": {"epoch": 1}},
}
READERS = (read_checkpoint, read_upgraded)


def save(folder: Path, content: object = STATE, **options: bool) -> Path:
    torch.save(content, folder / "model.pt", **options)
    return folder / "model.pt"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("archive", [True, False])  # as torch writes, and as it did before 2020
def test_weights_and_the_options_of_models_without_a_dataclass(read, archive, tmp_path):
    state = read(save(tmp_path, _use_new_zipfile_serialization=archive))
    assert torch.equal(state["model"]["w"], STATE["model"]["w"])


@pytest.mark.parametrize("read", READERS)
def test_numbers_of_numpy_are_read_as_fairseq_leaves_them_in_meters(read, tmp_path):
    """As ``--eval-bleu`` does; nothing else of NumPy's is allowed with them."""
    meters = [np.float64(1.5), np.int64(3), np.arange(4), np.bool_(True)]
    state = read(save(tmp_path, {**STATE, "extra_state": {"metrics": meters}}))
    found = state["extra_state"]["metrics"]
    assert [np.asarray(one).tolist() for one in found] == [1.5, 3, [0, 1, 2, 3], True]
    with pytest.raises(DamagedCheckpoint, match="holds code"):
        read(save(tmp_path, {**STATE, "extra_state": np.random.RandomState(1)}))


@pytest.mark.parametrize(
    ("report", "metric"),
    [("mcc", "mcc"), ("acc_and_f1", "f1"), ("pearson_and_spearman", "spearman")],
)
def test_meters_of_fairseqs_reports_are_read(report, metric, tmp_path):
    """With the best value of a metric, which NumPy computes, as fairseq's trainer keeps them."""
    log = {"loss": torch.tensor(1.0), "ntokens": 8, "nsentences": 4, "sample_size": 4}
    log |= {"ncorrect": torch.tensor(3), "pred": [0, 1, 1, 0], "targ": [0, 1, 0, 0]}
    with metrics.aggregate(new_root=True) as meters:
        SentencePredictionCriterion.reduce_metrics([{**log, f"report_{report}": True}])
    best = meters.get_smoothed_values()[metric]
    extra = {"metrics": {"valid": meters.state_dict()}, "best": best, "val_loss": best}
    found = read_checkpoint(save(tmp_path, {**STATE, "extra_state": extra}))["extra_state"]
    assert found["best"] == best > 0
    assert [name for _, name, *_ in found["metrics"]["valid"]].count("pred") == 1


def test_options_of_the_training_are_replaced(tmp_path):
    assert read_upgraded(save(tmp_path))["cfg"]["task"]["data"] == "there"
    assert read_upgraded(save(tmp_path), data="here")["cfg"]["task"]["data"] == "here"


def test_weights_that_are_changed_leave_the_file_as_it_is(tmp_path):
    path = save(tmp_path)
    before = path.read_bytes()
    read_checkpoint(path)["model"]["w"].zero_()
    assert path.read_bytes() == before


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("archive", [True, False])
def test_a_file_cut_off_anywhere_is_refused(read, archive, tmp_path):
    path = save(tmp_path, _use_new_zipfile_serialization=archive)
    content = path.read_bytes()
    for length in (*range(0, 200, 7), *range(200, len(content), 101), len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedCheckpoint, match=r"model\.pt: it"):
            read(path)


@pytest.mark.parametrize("read", READERS)
def test_a_flipped_bit_in_the_weights_is_noticed(read, tmp_path):
    path = save(tmp_path)
    content = bytearray(path.read_bytes())
    place = content.index(torch.arange(512.0).numpy().tobytes())
    content[place + 1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match="data/0 has a wrong checksum"):
        read(path)


MACHINE = (
    RuntimeError("unable to mmap 9 bytes from file <model.pt>: Cannot allocate memory (12)"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
    OSError(errno.EIO, "Input/output error"),
)


@pytest.mark.parametrize("error", MACHINE)
def test_a_machine_that_cannot_read_a_file_says_nothing_about_the_file(
    error, tmp_path, monkeypatch
):
    """Else a run would put intact checkpoints aside, and start anew."""
    path = save(tmp_path)
    monkeypatch.setattr(torch, "load", Mock(side_effect=error))
    with pytest.raises(OSError, match=r"(Cannot allocate memory|Input/output).*model\.pt"):
        read_checkpoint(path)


def test_a_damaged_file_that_asks_for_all_memory_is_damaged(tmp_path, monkeypatch):
    path = save(tmp_path, _use_new_zipfile_serialization=False)  # has no checksums
    monkeypatch.setattr(torch, "load", Mock(side_effect=MemoryError))
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(path)


class Foreign:
    """What a checkpoint may not hold: making it could run code."""


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "content", [[1, 2], {"weights": {}}, {"model": 3}, {"model": {}, "more": Foreign()}]
)
def test_something_else_is_refused(read, content, tmp_path):
    with pytest.raises(CheckpointError, match=r"model\.pt: it is .*not a (fairseq )?checkpoint"):
        read(save(tmp_path, content))


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_is_not_there_is_named(read, tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.pt is missing"):
        read(tmp_path / "none.pt")


def test_weights_have_one_checksum_whatever_the_file_and_the_output_head():
    """Of a start that is prepared with another version, or on another kind of processor."""
    state = {
        "encoder.layers.0.fc1.weight": torch.arange(6.0).reshape(2, 3),
        "encoder.layers.0.fc1.bias": torch.ones(2, dtype=torch.bfloat16),
        "encoder.lm_head.dense.weight": torch.zeros(3, 3),
        "encoder.version": torch.tensor(3.0),
    }
    expected = weights_checksum(state)
    head = {"encoder.lm_head.dense.weight": torch.full((3, 3), 1e-9)}
    assert weights_checksum(dict(reversed((state | head).items()))) == expected
    for name, changed in {
        "encoder.layers.0.fc1.weight": torch.arange(6.0).reshape(3, 2).mT.contiguous(),
        "encoder.layers.0.fc1.bias": torch.ones(2, dtype=torch.float16),
        "encoder.layers.0.fc2.bias": torch.ones(2),
    }.items():
        assert weights_checksum(state | {name: changed}) != expected, name
