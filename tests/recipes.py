"""Recipes composed by Hydra alone, each anew, without the package's way around its slow parts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from fairseq_plugins.records import recipe as recipes


def compose_recipe(configs: Path, recipe: str, overrides: Sequence[str]) -> DictConfig:
    """What `fairseq-hydra-train --config-dir configs --config-name recipe overrides` composes."""
    config = recipes._compose(configs, recipe, tuple(overrides))
    with recipes._known_to_hydra(recipes._settings(config)):
        for key in config.checkpoint:
            if OmegaConf.is_interpolation(config.checkpoint, key):
                config.checkpoint[key] = config.checkpoint[key]
    with open_dict(config):
        del config["hydra"]
    return config


def record(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain data, without absolute paths."""
    return {
        name: recipes._without_absolute_paths(recipes._plain(config[name]))
        for name in recipes.SECTIONS
    }
