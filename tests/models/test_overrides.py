"""Overrides of options when a trained model is read."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from fairseq_plugins.models.pe_transformer import PETransformerConfig
from fairseq_plugins.modules.overrides import check_overrides

UNKNOWN = "{'no_cross_attention': True}"


def check(overrides: str | None, path: str = "x.pt", lm_path: str | None = None) -> None:
    sections = {
        "common_eval": {"path": path, "model_overrides": overrides},
        "generation": {"lm_path": lm_path, "beam": 5},
        "task": Namespace(lang_pairs="a-b"),  # of a task without a dataclass
        "scoring": None,
        "model": "???",
    }
    config = OmegaConf.create(sections, flags={"allow_objects": True})
    check_overrides(config, PETransformerConfig)


@pytest.mark.parametrize(
    "known",
    [
        None,
        "{}",
        "{'beam': 4, 'encoder_position_encoding': 'rope'}",
        "{'lang_pairs': 'a-c'}",
        "{'task': {'data': 'x'}}",
        "dict(beam=1)",
    ],
)
def test_options_of_the_model_and_of_fairseq(known: str | None) -> None:
    check(known)


def test_others_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`model_overrides` must name .* 'no_cross_attention'"):
        check(UNKNOWN)


def test_models_that_share_overrides_may_have_different_options() -> None:
    check(UNKNOWN, path="x.pt:y.pt")
    check(UNKNOWN, lm_path="y.pt")


def test_a_call_without_a_command() -> None:
    check_overrides(SimpleNamespace(generation=None), PETransformerConfig)
