"""Distillation of hidden states: what its loss is, and what stays out of the student."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from torch import nn

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.common.errors import CheckpointError, OptionError
from fairseq_plugins.criterions.hidden_state_distillation import (
    NAME,
    HiddenStateDistillation,
    HiddenStateDistillationConfig,
    relative_squared_error,
)
from tests.models.helpers import DICTIONARY, LONGEST, PAD, random_tokens
from tests.models.roberta import TINY, build, enlarge
from tests.models.test_continued import save

TASK = SimpleNamespace(
    cfg=SimpleNamespace(tokens_per_sample=LONGEST, data=""),
    source_dictionary=DICTIONARY,
    target_dictionary=DICTIONARY,
)


def criterion(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """The criterion with the model of a checkpoint as its teacher."""
    teacher = build(encoding="base")
    teacher.load_state_dict(torch.load(path, weights_only=True)["model"])
    monkeypatch.setattr(
        "fairseq_plugins.criterions.hidden_state_distillation._build_teacher",
        lambda path, task: teacher.eval().requires_grad_(False),
    )
    config = HiddenStateDistillationConfig(teacher=str(path), **options)
    cls = CRITERION_REGISTRY[NAME]
    assert cls is HiddenStateDistillation
    return cls(config, TASK)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return save(tmp_path / "model.pt", enlarge(build(encoding="base")), position_encoding="base")


def sample(rows: int = 3, padding: int = 0) -> dict[str, Any]:
    tokens = random_tokens(rows, LONGEST)
    if padding:
        tokens[0, -padding:] = PAD
    count = int(tokens.ne(PAD).sum())
    return {"net_input": {"src_tokens": tokens}, "ntokens": count, "nsentences": rows}


def test_relative_squared_error_is_0_at_the_target_and_1_at_zero() -> None:
    target = torch.randn(5, 8)
    assert relative_squared_error(target, target).eq(0).all()
    torch.testing.assert_close(relative_squared_error(torch.zeros(5, 8), target), torch.ones(5))
    torch.testing.assert_close(relative_squared_error(2 * target, target), torch.ones(5))


@pytest.mark.parametrize("layers", ["all", "last"])
def test_the_unchanged_model_has_no_loss(
    layers: str, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = criterion(start, monkeypatch, layers=layers)
    student = build(encoding="base", init_from=str(start))
    batch = sample(padding=3)
    loss, size, logs = found(student, batch)
    assert float(loss) < 1e-8 * float(size)
    assert float(logs["cosine"] / size) == pytest.approx(1, abs=1e-5)
    assert int(size) == batch["ntokens"]


def test_padding_changes_nothing_and_the_student_learns(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = criterion(start, monkeypatch)
    student = build(encoding="none", attention="linear", init_from=str(start))
    batch = sample()
    padded = {**batch, "net_input": {"src_tokens": nn.functional.pad(
        batch["net_input"]["src_tokens"], (0, 4), value=PAD
    )}}  # fmt: skip
    before, size, _ = found(student, batch)
    torch.testing.assert_close(found(student, padded)[0], before, rtol=1e-4, atol=1e-4)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.003)
    for _ in range(100):
        optimizer.zero_grad()
        (found(student, batch)[0] / size).backward()
        optimizer.step()
    assert float(found(student, batch)[0]) < 0.5 * float(before)


def test_the_teacher_is_neither_saved_nor_optimised(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = criterion(start, monkeypatch)
    assert not found.state_dict() and not list(found.parameters())


def test_a_teacher_of_another_size_is_refused(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = criterion(start, monkeypatch)
    student = build(encoding="base", **{**TINY, "encoder_layers": 1})
    with pytest.raises(OptionError, match="`teacher` must have the layers and the width"):
        found(student, sample())


def test_a_teacher_that_is_missing_is_refused(tmp_path: Path) -> None:
    config = HiddenStateDistillationConfig(teacher=str(tmp_path / "none.pt"))
    with pytest.raises(CheckpointError, match=r"^`teacher` must be .*none\.pt is missing"):
        HiddenStateDistillation(config, TASK)
