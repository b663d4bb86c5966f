"""Flags and YAML are two ways to say the same model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_plugins.encodings.bases import Identity
from tests.integration.helpers import (
    ENCODING_DEFAULTS,
    Built,
    fairseq_hydra_train,
    fairseq_train,
    load_checkpoint,
    losses,
    overrides,
    saving_to,
    stopping_before_training,
)

Model = dict[str, Any]

# Every field of the model's own options, and options of encodings of every type; that each option
# is taken as a word is held by tests/encodings/test_options.py.
CASES: dict[str, Model] = {
    "defaults": {},
    "absolute_off": {"position_encoding": "rope", "no_token_positional_embeddings": True},
    "learned": {"position_encoding": "learned"},
    "linear": {
        "attention_type": "linear",
        "position_encoding": "lrpe_type3",
        "feature_map": "relu",
        "linear_normalizer": "plain",
    },
    "rotation": {
        "attention_type": "linear",
        "position_encoding": "lrpe_type5",
        "position_encoding_options": "p=identity rotated=all layout=half_split theta_type=a "
        "base=500.0 learned_theta=true",
        "linear_normalizer": "none",
    },
    "clamped": {
        "attention_type": "linear",
        "position_encoding": "rope",
        "linear_normalizer": "clamped",
        "linear_epsilon": 0.001,
    },
    "output_norm": {
        "attention_type": "linear",
        "position_encoding": "lrpe_type2",
        "linear_normalizer": "output_norm",
        "linear_output_norm": "rms_norm",
    },
    "permutation": {
        "position_encoding": "lrpe_type1",
        "position_encoding_options": "core=permutation learned_p=true",
    },
    "t5": {
        "position_encoding": "t5",
        "position_encoding_options": "num_buckets=8 max_distance=12",
    },
    "shaw": {
        "position_encoding": "shaw",
        "position_encoding_options": "max_distance=3 values=false",
    },
    "rotary": {
        "position_encoding": "xpos+rope_values+rope_ntk",
        "position_encoding_options": "xpos.scale_base=300.0 xpos.gamma=0.5 xpos.base=500.0 "
        "xpos.layout=half_split rope_values.output=as_is rope_values.rotated=half "
        "rope_values.base=500.0 rope_values.layout=half_split rope_ntk.scaling=interpolation "
        "rope_ntk.factor=3.0 rope_ntk.rotated=half rope_ntk.base=500.0 rope_ntk.layout=half_split",
    },
    "composition": {
        "position_encoding": "sinusoidal+lrpe_type8+alibi",
        "position_encoding_options": "lrpe_type8.base=100 lrpe_type8.core=rotation",
    },
}


def _built_by_flags(tmp_path: Path, data: Path, model: Model) -> Built:
    with stopping_before_training() as built:
        fairseq_train(saving_to(tmp_path, data, **model))
    return built.value


def _built_by_hydra(tmp_path: Path, data: Path, model: Model) -> Built:
    settings = {**saving_to(tmp_path, data), **ENCODING_DEFAULTS}
    words = overrides({f"model.{name}": value for name, value in model.items()})
    with stopping_before_training() as built:
        fairseq_hydra_train(tmp_path / "yaml", settings, *words)
    return built.value


# Nothing set, and options of every type; the others take two models more each.
QUICK = {"defaults", "linear", "rotary"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES]
)
def test_same_model(case: str, data: Path, tmp_path: Path) -> None:
    flags = _built_by_flags(tmp_path, data, CASES[case])
    hydra = _built_by_hydra(tmp_path, data, CASES[case])
    options = [OmegaConf.to_container(built.config.model) for built in (flags, hydra)]
    assert options[0] == options[1]
    for name, value in CASES[case].items():
        assert options[0][name] == value
    assert str(flags.model) == str(hydra.model)
    states = [built.model.state_dict() for built in (flags, hydra)]
    assert list(states[0]) == list(states[1])
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


@pytest.mark.parametrize(
    "case",
    [
        "linear",
        *(
            pytest.param(case, marks=pytest.mark.slow)
            for case in ("defaults", "rotation", "output_norm", "composition")
        ),
    ],
)
def test_same_training(case: str, data: Path, tmp_path: Path) -> None:
    """Here everything stands in the YAML, nothing on the command line."""
    flags, hydra = tmp_path / "flags", tmp_path / "hydra"
    fairseq_train(saving_to(flags, data, dropout=0.1, **CASES[case]))
    fairseq_hydra_train(tmp_path / "yaml", saving_to(hydra, data, dropout=0.1, **CASES[case]))
    assert list(losses(flags)) == [1, 2, 3]
    assert losses(flags) == losses(hydra)
    states = [load_checkpoint(d / "checkpoint_last.pt")["model"] for d in (flags, hydra)]
    assert list(states[0]) == list(states[1])
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def test_encoding_is_inside(data: Path, tmp_path: Path) -> None:
    """The options reach the layers: a test against two routes that both ignore them."""
    model = _built_by_flags(tmp_path, data, CASES["rotation"]).model
    for layer in model.decoder.layers:
        attention = layer.self_attn.attention
        assert (attention.name, attention.normalizer) == ("linear", "none")
        assert isinstance(attention.encoding.basis, Identity)
        assert attention.encoding.core.layout == "half_split"
        assert attention.encoding.core.count == 4
        assert attention.encoding.theta[1].item() == pytest.approx(500.0 ** (-2 / 8))
    assert model.decoder.position_embedding.label == "base"
