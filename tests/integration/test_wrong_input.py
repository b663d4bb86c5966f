"""Wrong input on the command line: the option, the constraint and the value, before training."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.common import short_errors
from tests.integration.helpers import (
    ENCODING_DEFAULTS,
    fairseq_hydra_train,
    fairseq_train,
    saving_to,
)

# The options of the model, and what the error says.
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown encoding": (
        {"position_encoding": "lrpe_typ2"},
        ("`position_encoding` must be one of", "'lrpe_typ2'", "Did you mean 'lrpe_type2'?"),
    ),
    "unknown part": (
        {"position_encoding": "base+ropee"},
        ("`position_encoding` must be one of", "'ropee'", "Did you mean 'rope'?"),
    ),
    "incompatible": (
        {"attention_type": "linear", "position_encoding": "t5"},
        ("linear attention cannot use the encoding 't5'", "`attn_bias`", "attention_type=vanilla"),
    ),
    "odd head_dim": (
        {
            "position_encoding": "rope",
            "decoder_embed_dim": 36,
            "decoder_input_dim": 36,
            "decoder_output_dim": 36,
        },
        ("`head_dim` must be even for a rotation", "is 9"),
    ),
    "unknown option": (
        {"position_encoding": "rope", "position_encoding_options": "rotate=half"},
        ("rope has no option `rotate`", "Did you mean 'rotated'?"),
    ),
    "option of nothing": (
        {"position_encoding": "alibi", "position_encoding_options": "base=3"},
        ("alibi has no option `base`", "none"),
    ),
    "bad value": (
        {"position_encoding": "lrpe_type1", "position_encoding_options": "rotated=some"},
        ("option `rotated` must be one of all, half", "'some'"),
    ),
    "no value": (
        {"position_encoding": "lrpe_type1", "position_encoding_options": "half"},
        ("`position_encoding_options` must be words like `name=value`", "'half'"),
    ),
    "length-dependent": (
        {"position_encoding": "rope", "position_encoding_options": "theta_type=b"},
        ("`theta_type=b`", "causal", "`theta_type=a`"),
    ),
    "beyond the table": (
        {"position_encoding": "learned", "max_target_positions": 8},
        ("`tokens_per_sample` must be at most max_target_positions=8", "16"),
    ),
    "heads": (
        {"decoder_attention_heads": 5},
        ("`decoder_embed_dim` must be a multiple of decoder_attention_heads=5", "32"),
    ),
    "linear options": (
        {"feature_map": "relu"},
        ("`feature_map` must be elu where no attention is linear", "relu", "vanilla"),
    ),
    "no share": (
        {"attention_type": "linear", "linear_normalizer": "encoded", "min_cosine": 2.0},
        ("`min_cosine` must be between 0 and 1, but is 2.0",),
    ),
    "not offered": (
        {"character_embeddings": True},
        ("`character_embeddings` must be False", "True"),
    ),
}


def _settings(tmp_path: Path, data: Path, model: dict[str, Any]) -> dict[str, Any]:
    settings = saving_to(tmp_path / "run", data, **model)
    if "max_target_positions" in model:  # an option of the task, which the model reads
        settings["task.max_target_positions"] = settings.pop("model.max_target_positions")
    return settings


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str, data: Path, tmp_path: Path) -> None:
    model, parts = CASES[case]
    with pytest.raises(ValueError, match=re.escape(parts[0])) as error:
        fairseq_train(_settings(tmp_path, data, model))
    for part in parts:
        assert part in str(error.value)
    assert not list((tmp_path / "run").glob("*.pt"))


@pytest.mark.parametrize(
    ("option", "value"),
    [("attention_type", "softmax"), ("feature_map", "gelu"), ("linear_normalizer", "no")],
)
def test_refused_by_the_parser(
    option: str, value: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        fairseq_train(_settings(tmp_path, data, {option: value}))
    message = capsys.readouterr().err
    assert f"--{option.replace('_', '-')}: invalid choice: '{value}'" in message


@pytest.mark.parametrize(
    "case", ["unknown encoding", "incompatible", "length-dependent", "linear options"]
)
def test_refused_by_hydra(
    case: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, parts = CASES[case]
    with pytest.raises(SystemExit):
        fairseq_hydra_train(tmp_path / "yaml", _settings(tmp_path, data, model))
    message = capsys.readouterr().err
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("model.postion_encoding=rope", "Key 'postion_encoding' is not in struct"),
        ("+model.postion_encoding=rope", "Key 'postion_encoding' not in 'PETransformerLMConfig'"),
        ("model.attention_type=softmax", "Invalid value 'softmax'"),
    ],
)
def test_hydra_refuses_words(
    word: str, complaint: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**_settings(tmp_path, data, {}), **ENCODING_DEFAULTS}
    with pytest.raises(SystemExit):
        fairseq_hydra_train(tmp_path / "yaml", settings, word)
    assert complaint in capsys.readouterr().err


def test_misspelt_key_in_yaml(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**_settings(tmp_path, data, {}), "model.atention_type": "linear"}
    with pytest.raises(SystemExit):
        fairseq_hydra_train(tmp_path / "yaml", settings)
    assert "Key 'atention_type' not in 'PETransformerLMConfig'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"common.seed": -1}, "Seed must be between"),
        ({"common.seed": 10**12}, "Seed must be between"),
        ({"task.tokens_per_sample": 10**12}, "`tokens_per_sample` must be from 1 to 2147483647"),
        ({"dataset.batch_size": False}, "--max-tokens"),
        ({"dataset.batch_size": -2}, "`dataset.batch_size` must be from 1 to 2147483647"),
        ({"optimization.max_update": -5}, "`optimization.max_update` must be from 0"),
        ({"optimization.lr": "-0.1"}, "`optimization.lr` must be at least 0 and finite"),
        ({"model.dropout": "nan"}, "`dropout` must be from 0 to 1, but is nan"),
        ({"common.amp": True}, "`common.amp` must be off on a CPU (common.cpu)"),
        ({"common.bf16": True}, "`common.bf16` must be off on a CPU (common.cpu)"),
        ({"common.memory_efficient_fp16": True}, "`common.fp16` must be off on a CPU"),
        (
            {"common.bf16": True, "common.cpu": False},
            "`common.tpu`, which --bf16 of fairseq-train",
        ),
        ({"common.fp16": True, "common.cpu": False}, "PyTorch finds none here"),
    ],
)
def test_what_fairseq_checks_is_a_line(
    change: dict[str, Any],
    said: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises((AssertionError, ValueError, RuntimeError)) as error:
        fairseq_train({**_settings(tmp_path, data, {}), **change})
    capsys.readouterr()
    short_errors._excepthook(error.type, error.value, error.tb)
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("dict.txt", "/dict.txt: No such file or directory"),
        ("train.*", "/train has no binarised text of the split train"),
    ],
)
def test_missing_data_is_a_line(
    lost: str, said: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    for path in folder.glob(lost):
        path.unlink()
    with pytest.raises(FileNotFoundError) as error:
        fairseq_train(_settings(tmp_path, folder, {}))
    capsys.readouterr()
    short_errors._excepthook(error.type, error.value, error.tb)
    line = capsys.readouterr().err
    assert f"{folder}{said}" in line and line.count("\n") == 1
