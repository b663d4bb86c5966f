"""The composed training configuration: what a run trains, and whether two results had the same."""

import functools
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq.dataclass.initialize import hydra_init
from fairseq.models import MODEL_DATACLASS_REGISTRY
from hydra import compose, initialize_config_dir
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

import fairseq_plugins.registration  # noqa: F401  (the schemas of what the recipes name)

# What a run's record keeps; fairseq's other sections belong to other commands.
SECTIONS = (
    "task",
    "model",
    "criterion",
    "optimizer",
    "lr_scheduler",
    "dataset",
    "optimization",
    "checkpoint",
    "common",
    "distributed_training",
)

START = "start"  # beside the sections: a published model that the training begins with

# Where and how fast a run goes, but not what it trains. Batch size and update frequency count
# as their product with the number of devices, which is compared as `total_batch`.
NOT_THE_EXPERIMENT = frozenset(
    {
        "task.data",
        "common.user_dir",
        "common.cpu",
        "common.log_interval",
        "common.log_format",
        "common.log_file",
        "common.tensorboard_logdir",
        "common.wandb_project",
        "checkpoint.save_dir",
        "checkpoint.restore_file",
        "checkpoint.finetune_from_model",
        "checkpoint.load_checkpoint_on_all_dp_ranks",
        "dataset.batch_size",
        "dataset.batch_size_valid",
        "dataset.num_workers",
        "optimization.update_freq",
        f"{START}.checkpoint",  # its sha256 counts
        "criterion.teacher",  # the start, or the run that stands for it
    }
)


# What composing raises for an override that cannot be.
REFUSED = (ValueError, HydraException, OmegaConfBaseException)


def in_a_line(error: BaseException) -> str:
    """What is wrong with an override, in one line: Hydra's own message has several."""
    found = [error, *([error.__cause__] if error.__cause__ else [])]
    lines = [line.strip() for one in found for line in str(one).splitlines()]
    noise = ("full_key:", "object_type=", "To append to your config")
    return " ".join(dict.fromkeys(s for s in lines if s and not s.startswith(noise)))


def compose_recipe(configs: Path, recipe: str, overrides: Sequence[str]) -> DictConfig:
    """What `fairseq-hydra-train --config-dir configs --config-name recipe overrides` composes.

    Raises:
        hydra.errors.HydraException: for a group, name or key that does not exist.
    """
    config = _compose(configs, recipe, tuple(overrides))
    with _known_to_hydra(config):
        for key in config.checkpoint:
            if OmegaConf.is_interpolation(config.checkpoint, key):
                config.checkpoint[key] = config.checkpoint[key]
    with open_dict(config):
        del config["hydra"]
    return config


def hydra_word(value: str) -> str:
    """A value as Hydra's grammar of overrides has it: in quotes where it has to be."""
    if re.fullmatch(r"[\w./:+-]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def record_with_encoding(
    configs: Path, recipe: str, overrides: Sequence[str], encoding: str
) -> dict[str, Any]:
    """The record of what `overrides` and one more, `model.position_encoding=`, compose.

    All encodings share one composition, which takes as long as the records of fifty.
    """
    config, settings = _compose_once(configs.resolve(), recipe, tuple(overrides))
    config.model.position_encoding = encoding  # in place of that of the last call
    with _known_to_hydra(config, settings):
        return record(config)


def _compose(configs: Path, recipe: str, overrides: tuple[str, ...]) -> DictConfig:
    """With Hydra's own section, of which the names of folders are made."""
    _register_schema(recipe)
    _share_schemas()
    with warnings.catch_warnings():
        # fairseq relies on the primary config and its schema having the same name.
        warnings.filterwarnings("ignore", message=r"\s*'\w+' is validated against")
        with initialize_config_dir(str(configs.resolve()), version_base="1.1"):
            return compose(recipe, overrides=list(overrides), return_hydra_config=True)


@functools.cache
def _compose_once(
    configs: Path, recipe: str, overrides: tuple[str, ...]
) -> tuple[DictConfig, HydraConf]:
    """A composition, and Hydra's own settings of it."""
    config = _compose(configs, recipe, overrides)
    return config, _settings(config)


def _settings(config: DictConfig) -> HydraConf:
    """Hydra's own, which it has for the whole process."""
    hydra = HydraConfig.instance()
    before = hydra.cfg
    hydra.set_config(config)
    settings, hydra.cfg = hydra.cfg, before
    assert settings is not None
    return settings


@contextmanager
def _known_to_hydra(config: DictConfig, settings: HydraConf | None = None) -> Iterator[None]:
    """Write out folders as Hydra does, of the recipe, the scale and overrides.

    It can do so in its own commands alone, where its settings are known to the whole process.
    """
    hydra = HydraConfig.instance()
    before = hydra.cfg
    hydra.cfg = _settings(config) if settings is None else settings
    try:
        yield
    finally:
        hydra.cfg = before


@functools.cache
def _register_schema(recipe: str) -> None:
    hydra_init(recipe)


@functools.cache
def _share_schemas() -> None:
    """Have Hydra copy no schema but those that it loads.

    Every composition copies the store of all of them, which takes half of its time, and then each
    one again that it takes out.
    """
    store = ConfigStore.instance()
    vars(store)["__deepcopy__"] = lambda memo: store


def record(config: DictConfig) -> dict[str, Any]:
    """The composed configuration as plain data, without absolute paths."""
    return {
        name: _without_absolute_paths(
            OmegaConf.to_container(config[name], resolve=True, enum_to_str=True)
        )
        for name in SECTIONS
    }


def _without_absolute_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_absolute_paths(inner)
            for key, inner in value.items()
            if not (isinstance(inner, str) and os.path.isabs(inner))
        }
    return value


def trainings_of(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded configurations of a run by name; a run that is one training has the name ""."""
    return recorded.get("trainings") or {"": recorded}


def total_batch(recorded: Mapping[str, Any]) -> int:
    """Sequences per update, over all devices (Table 7: "Total batch size").

    Tokens where a batch is counted in these (its "Max token per batch").
    """
    return int(
        (recorded["dataset"].get("batch_size") or recorded["dataset"]["max_tokens"])
        * recorded["optimization"]["update_freq"][0]
        * recorded["distributed_training"]["distributed_world_size"]
    )


def _with_defaults(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's section with what it leaves at its defaults, written out or not."""
    options = MODEL_DATACLASS_REGISTRY.get(model.get("_name"))
    return {**(vars(options()) if options else {}), **model}


def _experiment(recorded: Mapping[str, Any]) -> dict[str, Any]:
    complete = {**recorded, "model": _with_defaults(recorded["model"])}
    flat = {
        f"{section}.{key}": value
        for section, keys in complete.items()
        if section != "distributed_training"
        for key, value in keys.items()
        if f"{section}.{key}" not in NOT_THE_EXPERIMENT and value is not None
    }
    return {**flat, "total_batch": total_batch(recorded)}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What makes two recorded configurations different experiments: "key: old -> new".

    Of runs with several trainings, which are recorded by name, "name: key: old -> new".
    """
    if "trainings" not in new:
        return _differences(old, new)
    before, after = old.get("trainings", {}), new["trainings"]
    return [
        f"{name}: {difference}"
        for name in sorted(before.keys() | after.keys())
        for difference in _differences(before.get(name, {}), after.get(name, {}))
    ]


def _names(recorded: Mapping[str, Any], key: str) -> bool:
    """Whether a recorded configuration has a key, be it without a value."""
    section, _, name = key.partition(".")
    return name in recorded.get(section, {})


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    try:
        before, after = _experiment(old), _experiment(new)
    except (KeyError, TypeError, AttributeError, IndexError):
        return ["the recorded configuration is not complete"]
    keys = before.keys() | after.keys()
    # These sections hold all of fairseq's defaults, so a key may come and go with its version; one
    # that is there without a value and then with one is a setting.
    unknown = {
        key
        for key in before.keys() ^ after.keys()
        if key.partition(".")[0] in ("common", "dataset", "optimization", "checkpoint")
        and not (_names(old, key) and _names(new, key))
    }
    return [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        for key in sorted(keys - unknown)
        if before.get(key) != after.get(key)
    ]
