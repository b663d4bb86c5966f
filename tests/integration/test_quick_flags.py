"""Tests convert flags to what fairseq converts them to."""

import pytest
from fairseq import options
from fairseq.dataclass import utils
from hydra.experimental import compose, initialize
from omegaconf import OmegaConf

from tests.integration.helpers import flags, saving_to
from tests.integration.quick_flags import QuickComposer


@pytest.mark.filterwarnings("ignore")  # hydra's, on the names that fairseq imports
@pytest.mark.parametrize("command", ["train", "generate"])
def test_flags_mean_the_same(command, tmp_path, monkeypatch):
    if command == "train":
        settings = saving_to(tmp_path, tmp_path, attention_type="linear", position_encoding="rope")
        args = options.parse_args_and_arch(options.get_training_parser(), flags(settings))
    else:
        words = [str(tmp_path), "--path", "a.pt", "--task", "language_modeling", "--cpu"]
        args = options.parse_args_and_arch(options.get_generation_parser(), words)
    monkeypatch.setattr(utils, "compose", QuickComposer())
    first, again = (utils.convert_namespace_to_omegaconf(args) for _ in range(2))
    monkeypatch.setattr(utils, "initialize", initialize)
    monkeypatch.setattr(utils, "compose", compose)
    expected = OmegaConf.to_yaml(utils.convert_namespace_to_omegaconf(args))
    assert OmegaConf.to_yaml(first) == OmegaConf.to_yaml(again) == expected
