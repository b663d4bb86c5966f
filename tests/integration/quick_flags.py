"""fairseq's conversion of flags to a configuration, without composing the same groups again.

Of each command with flags fairseq composes its schemas, with an override for every option that
there is. Parsing these and loading the schemas takes longer than the training of a tiny model.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import fairseq
import hydra
import pytest
from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

CONFIGS = Path(fairseq.__file__).with_name("config")


class QuickComposer:
    """A function like `hydra.compose` that keeps compositions of groups, and parsed overrides."""

    def __init__(self) -> None:
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._parsed: dict[str, Override] = {}

    def __call__(self, name: str, overrides: list[str], strict: bool) -> DictConfig:
        groups = tuple(word for word in overrides if "." not in word.partition("=")[0])
        if (name, *groups) not in self._composed:
            with hydra.initialize_config_dir(str(CONFIGS), version_base="1.1"):
                self._composed[name, *groups] = hydra.compose(name, overrides=[*groups])
        config = copy.deepcopy(self._composed[name, *groups])
        others = [self._parse(word) for word in overrides if word not in groups]
        ConfigLoaderImpl._apply_overrides_to_config(others, config)
        OmegaConf.set_struct(config, strict)
        return config

    def _parse(self, word: str) -> Override:
        if word not in self._parsed:
            (self._parsed[word],) = OverridesParser.create().parse_overrides([word])
        return self._parsed[word]


@contextmanager
def quick_flags() -> Iterator[None]:
    """Let fairseq convert flags so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "initialize", lambda config_path: nullcontext())
        patch.setattr(utils, "compose", QuickComposer())
        yield
