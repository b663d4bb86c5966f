"""Trainings with the criterions without logits are those with fairseq's, by its own commands."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.helpers import (
    fairseq_train,
    fairseq_validate,
    load_checkpoint,
    logged_by_fairseq,
    losses,
    saving_to,
)
from tests.integration.test_roberta import MASKED_LM

UPDATES = 8
Settings = dict[str, Any]


def language_model(folder: Path, data: Path) -> Settings:
    settings = saving_to(folder, data, attention_type="linear", position_encoding="rope")
    return {**settings, "criterion._name": "cross_entropy"}


def masked_language_model(folder: Path, data: Path) -> Settings:
    places = {"task.data": data, "checkpoint.save_dir": folder}
    return {**MASKED_LM, "model.position_encoding": "rope", **places}


def train(settings: Settings, **more: Any) -> None:
    fairseq_train({**settings, "optimization.max_update": UPDATES, **more})


@pytest.mark.parametrize("family", [language_model, masked_language_model])
@pytest.mark.parametrize("sentence_avg", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_same_losses(family: Any, sentence_avg: bool, data: Path, tmp_path: Path) -> None:
    theirs, ours = (family(tmp_path / name, data) for name in ("theirs", "ours"))
    ours["criterion._name"] = f"blockwise_{ours['criterion._name']}"
    for settings in (theirs, ours):
        train({**settings, "optimization.sentence_avg": sentence_avg})
    expected = losses(tmp_path / "theirs")
    assert list(expected) == list(range(1, UPDATES + 1))
    assert losses(tmp_path / "ours") == pytest.approx(expected, rel=1e-5)
    assert expected[UPDATES] < expected[1]


@pytest.mark.parametrize(
    "options",
    [["fp16"], pytest.param(["fp16", "memory_efficient_fp16"], marks=pytest.mark.slow)],
)
def test_half_precision(options: list[str], data: Path, tmp_path: Path, half_on_cpu: None) -> None:
    """A scaled loss and a half model, as on a GPU; float32 sums keep it close to float32."""
    named = {f"common.{option}": True for option in options}
    blockwise = {"criterion._name": "blockwise_cross_entropy"}
    train(language_model(tmp_path / "full", data))
    train({**language_model(tmp_path / "half", data), **blockwise, **named})
    full, half = losses(tmp_path / "full"), losses(tmp_path / "half")
    assert list(half) == list(full)
    assert half == pytest.approx(full, rel=0.01)


def test_validation(data: Path, tmp_path: Path) -> None:
    """fairseq-validate finds the criterion in the checkpoint; loss and perplexity are fairseq's."""
    shown = []
    for criterion in ("cross_entropy", "blockwise_cross_entropy"):
        folder = tmp_path / criterion
        train({**language_model(folder, data), "criterion._name": criterion})
        path = folder / "checkpoint_last.pt"
        assert load_checkpoint(path)["cfg"]["criterion"]["_name"] == criterion
        with logged_by_fairseq() as messages:
            fairseq_validate(data, path, "--task", "language_modeling")
        (found,) = re.findall(r"valid on .* loss ([0-9.]+) \| ppl ([0-9.]+)", "\n".join(messages))
        shown.append([float(number) for number in found])
    assert shown[0] == pytest.approx(shown[1], rel=1e-3)  # three digits are shown
