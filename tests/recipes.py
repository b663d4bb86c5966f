"""Recipes composed by Hydra alone, each anew, without the package's way around its slow parts."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from fairseq_plugins.records import recipe as recipes


def compose_recipe(configs: Path, recipe: str, overrides: Sequence[str]) -> DictConfig:
    """What `fairseq-hydra-train --config-dir configs --config-name recipe overrides` composes."""
    recipes._register_schema(recipe)
    hydra = HydraConfig.instance()
    before = hydra.cfg
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*'\w+' is validated against")
        with initialize_config_dir(str(configs.resolve()), version_base="1.1"):
            config = compose(recipe, overrides=list(overrides), return_hydra_config=True)
    try:
        hydra.set_config(config)  # the names of folders refer to Hydra's settings
        for key in config.checkpoint:
            if OmegaConf.is_interpolation(config.checkpoint, key):
                config.checkpoint[key] = config.checkpoint[key]
    finally:
        hydra.cfg = before
    with open_dict(config):
        del config["hydra"]
    return config


def record(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain data, without absolute paths."""
    return {
        name: recipes._without_absolute_paths(recipes._plain(config[name]))
        for name in recipes.SECTIONS
    }
