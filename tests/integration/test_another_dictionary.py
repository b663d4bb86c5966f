"""A checkpoint meets data with another dictionary of the same size: the words would be others."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import digest
from tests.integration.helpers import (
    TOKENS_PER_SAMPLE,
    fairseq_eval_lm,
    fairseq_hydra_train,
    fairseq_train,
    load_checkpoint,
    saving_to,
)

SAMPLE = ("--tokens-per-sample", str(TOKENS_PER_SAMPLE), "--batch-size", "4")


@pytest.fixture
def swapped(data: Path, tmp_path: Path) -> Path:
    """The same data, of which two words have exchanged their numbers."""
    folder = tmp_path / "swapped"
    shutil.copytree(data, folder)
    lines = (folder / "dict.txt").read_text().splitlines()
    lines[3], lines[4] = lines[4], lines[3]
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    return folder


def told(checkpoint: Path) -> str:
    return str(load_checkpoint(checkpoint)["cfg"]["model"]["dictionary_digest"])


def without_digest(checkpoint: Path, target: Path) -> Path:
    """As training wrote it before there was one."""
    state = load_checkpoint(checkpoint)
    del state["cfg"]["model"]["dictionary_digest"]
    torch.save(state, target)
    return target


def settings(folder: Path, data: Path, **more: Any) -> dict[str, Any]:
    return {**saving_to(folder, data), "checkpoint.save_interval_updates": 0, **more}


def test_training_writes_it_by_flags_and_by_hydra(data: Path, tmp_path: Path) -> None:
    expected = digest(Dictionary.load(str(data / "dict.txt")).symbols)
    fairseq_train(settings(tmp_path / "flags", data))
    fairseq_hydra_train(tmp_path / "yaml", settings(tmp_path / "hydra", data))
    for folder in ("flags", "hydra"):
        assert told(tmp_path / folder / "checkpoint_last.pt") == expected


def test_it_is_refused_in_evaluation(data: Path, checkpoints: dict[str, Path], swapped: Path):
    checkpoint = checkpoints["vanilla"]
    fairseq_eval_lm(data, checkpoint, *SAMPLE)
    with pytest.raises(CheckpointError, match=rf"dict\.txt must have .* {told(checkpoint)}, but"):
        fairseq_eval_lm(swapped, checkpoint, *SAMPLE)


@pytest.mark.parametrize("option", ["save_dir", "restore_file", "finetune_from_model"])
def test_it_is_refused_where_training_begins(
    option: str, data: Path, checkpoints: dict[str, Path], swapped: Path, tmp_path: Path
) -> None:
    model = load_checkpoint(checkpoints["linear"])["cfg"]["model"]
    names = {f"model.{name}": model[name] for name in ("attention_type", "position_encoding")}
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(checkpoints["linear"], folder / "checkpoint_last.pt")
    place = {"optimization.max_update": 41}
    if option != "save_dir":
        place[f"checkpoint.{option}"] = folder / "checkpoint_last.pt"
        folder = tmp_path / "new"
    with pytest.raises(CheckpointError, match=r"must hold the tokens .* token 7 is 'w"):
        fairseq_train({**settings(folder, swapped), **names, **place})
    fairseq_train({**settings(folder, data), **names, **place})


def test_one_without_a_digest_is_taken_with_a_warning(
    data: Path, checkpoints: dict[str, Path], swapped: Path, tmp_path: Path, caplog
) -> None:
    old = without_digest(checkpoints["vanilla"], tmp_path / "old.pt")
    with caplog.at_level(logging.WARNING):
        loss = fairseq_eval_lm(data, old, *SAMPLE)
    assert loss == fairseq_eval_lm(data, checkpoints["vanilla"], *SAMPLE)
    assert "does not record its dictionary" in caplog.text
