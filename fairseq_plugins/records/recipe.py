"""Composed training configurations, and the differences between two recorded ones."""

import functools
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Self

from fairseq.dataclass.initialize import hydra_init
from fairseq.models import MODEL_DATACLASS_REGISTRY
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import fairseq_plugins.registration  # noqa: F401  (schemas of the recipes)
from fairseq_plugins.modules.options import unused_linear_options

# Recorded sections; fairseq's other sections belong to other commands.
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

START = "start"  # key beside the sections: the published model that the training starts from

# Settings that do not change what is trained. Batch size and update frequency are compared as their
# product with the number of devices, `total_batch`.
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
        f"{START}.checkpoint",  # its weights are compared
        "criterion.teacher",  # the same checkpoint
    }
)


# Raised by the composition of an invalid override.
COMPOSITION_ERRORS = (ValueError, HydraException, OmegaConfBaseException)


def in_a_line(error: BaseException) -> str:
    """Return the lines of a message and its cause (Hydra has several) as one, each once."""
    errors = [error, *([error.__cause__] if error.__cause__ else [])]
    lines = [line.strip() for one in errors for line in str(one).splitlines()]
    noise = ("full_key:", "object_type=", "To append to your config")
    result = ""
    for line in lines:
        if line not in result and not line.startswith(noise):
            result = f"{result} {line}".lstrip()
    return result


def hydra_word(value: str) -> str:
    """Quote a value for Hydra's overrides where that is needed."""
    if re.fullmatch(r"[\w./:+-]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parse_setting(override: str) -> tuple[str, Any]:
    """Return the key and the value of a Hydra override, which is the same for 1e-3 and 0.001."""
    parsed = OverridesParser.create().parse_override(override)
    return parsed.key_or_group, parsed.value()


_SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.\w+=")
_cached_setting = functools.cache(parse_setting)


@functools.cache
def record(configs: Path, recipe: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Return the record of a recipe as plain data, without absolute paths.

    The recipe is what `fairseq-hydra-train --config-dir configs --config-name recipe overrides`
    composes.

    All records of a recipe with the same groups share one composition, which takes as long as a
    hundred records. Results are cached and share values: do not change them. configs: an absolute
    path.

    Raises hydra.errors.HydraException: a group, name or key does not exist.
    """
    groups = tuple(word for word in overrides if not _SETTING.match(word))
    changes = [_cached_setting(word) for word in overrides if _SETTING.match(word)]
    composition = _compose_once(configs, recipe, groups)
    try:
        return composition.record(changes)
    except (OmegaConfBaseException, KeyError):  # Hydra's error names the override
        return _compose_once(configs, recipe, overrides).record(())


@dataclass(frozen=True)
class _Composition:
    """A composed configuration."""

    config: DictConfig
    written: Mapping[str, Mapping[str, Any]]  # by section and key, with references as written
    references: Mapping[tuple[str, str], str]  # by section and key; none to Hydra's settings
    resolved: Mapping[str, Mapping[str, Any]]  # by section and key, with values for `references`

    @classmethod
    def of(cls, config: DictConfig) -> Self:
        written = {name: _plain(config[name], resolve=False) for name in SECTIONS}
        texts = {
            (section, name): str(value)
            for section, values in written.items()
            for name, value in values.items()
            if "${" in str(value)
        }
        of_hydra = _affected(texts, {one for one, text in texts.items() if "${hydra:" in text})
        references = {one: text for one, text in texts.items() if one not in of_hydra}
        resolved = {name: dict(values) for name, values in written.items()}
        for section, name in references:
            resolved[section][name] = _plain(config[section][name])
        return cls(config, written, references, resolved)

    def record(self, changes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Return the record with some settings changed; the composition stays as it is."""
        record = {name: dict(values) for name, values in self.resolved.items()}
        changed = [(section, name) for section, _, name in (k.partition(".") for k, _ in changes)]
        try:
            for key, value in changes:
                OmegaConf.update(self.config, key, value)
            for section, name in _affected(self.references, changed):
                record[section][name] = _plain(self.config[section][name])
        finally:
            for section, name in changed:
                OmegaConf.update(self.config, f"{section}.{name}", self.written[section][name])
        return {name: _without_absolute_paths(values) for name, values in record.items()}


def _affected(
    references: Mapping[tuple[str, str], str], changed: Iterable[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the settings that are changed or refer to a changed one."""
    affected, new = set(changed), set(changed)
    while new:
        names = [".".join(one) for one in new]
        new = {
            one
            for one, text in references.items()
            if one not in affected and any(name in text for name in names)
        }
        affected |= new
    return affected


def _compose(configs: Path, recipe: str, overrides: tuple[str, ...]) -> DictConfig:
    """Compose a recipe, without Hydra's own section."""
    _register_schema(recipe)
    with warnings.catch_warnings():
        # fairseq relies on the primary config and its schema having the same name.
        warnings.filterwarnings("ignore", message=r"\s*'\w+' is validated against")
        with initialize_config_dir(str(configs.resolve()), version_base="1.1"):
            return compose(recipe, overrides=list(overrides))


@functools.cache
def _compose_once(configs: Path, recipe: str, overrides: tuple[str, ...]) -> _Composition:
    try:
        return _Composition.of(_compose(configs, recipe, overrides))
    except (YAMLError, OmegaConfBaseException) as error:  # these do not name the recipe
        chosen = [word for word in overrides if "." not in word.partition("=")[0]]
        what, reason = " ".join([recipe, *chosen]), " ".join(str(error).split())
        raise HydraException(f"{what} does not compose: {reason}") from error


def _plain(value: Any, *, resolve: bool = True) -> Any:
    """Return a value of a composition as plain data."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=resolve, enum_to_str=True)
    return value.name if isinstance(value, Enum) else value


@functools.cache
def _register_schema(recipe: str) -> None:
    """Register fairseq's schema under the name of a recipe, as `hydra_init(recipe)` does."""
    _prepare_store()
    nodes = ConfigStore.instance().repo
    nodes[f"{recipe}.yaml"] = replace(nodes["config.yaml"], name=f"{recipe}.yaml")


@functools.cache
def _prepare_store() -> None:
    """Register fairseq's sections, and keep Hydra from copying all schemas for a composition.

    That copy takes half of the time; Hydra copies each schema that it loads anyway.
    """
    hydra_init()
    store = ConfigStore.instance()
    vars(store)["__deepcopy__"] = lambda memo: store


def _without_absolute_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_absolute_paths(inner)
            for key, inner in value.items()
            if not (isinstance(inner, str) and os.path.isabs(inner))
        }
    return value


def trainings_of(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded configurations of a run by name; the name of a single training is ""."""
    return recorded.get("trainings") or {"": recorded}


def total_batch(recorded: Mapping[str, Any]) -> int:
    """Return the sequences per update over all devices (LRPE, Table 7: "Total batch size").

    If batches are limited in tokens, these ("Max token per batch").
    """
    return int(
        (recorded["dataset"].get("batch_size") or recorded["dataset"]["max_tokens"])
        * recorded["optimization"]["update_freq"][0]
        * recorded["distributed_training"]["distributed_world_size"]
    )


def _effective(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's options that have an effect, with the defaults of missing ones."""
    options = MODEL_DATACLASS_REGISTRY.get(model.get("_name"))
    complete = {**(vars(options()) if options else {}), **model}
    types = {value for key, value in complete.items() if key.endswith("attention_type")}
    unused = unused_linear_options(types, str(complete.get("linear_normalizer")))
    if "linear" not in types:
        unused.append("linear_normalizer")
    return {key: value for key, value in complete.items() if key not in unused}


def _experiment(recorded: Mapping[str, Any]) -> dict[str, Any]:
    complete = {**recorded, "model": _effective(recorded["model"])}
    flat = {
        f"{section}.{key}": value
        for section, keys in complete.items()
        if section != "distributed_training"
        for key, value in keys.items()
        if f"{section}.{key}" not in NOT_THE_EXPERIMENT and value is not None
    }
    return {**flat, "total_batch": total_batch(recorded)}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the differences of two recorded configurations as "key: old -> new".

    For runs with several trainings, which are recorded by name, "name: key: old -> new".
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
    """Return whether a recorded configuration has a key, even without a value."""
    section, _, name = key.partition(".")
    return name in recorded.get(section, {})


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    try:
        before, after = _experiment(old), _experiment(new)
    except (KeyError, TypeError, AttributeError, IndexError):
        return ["the recorded configuration is not complete"]
    keys = before.keys() | after.keys()
    if after.get(f"{START}.weights") == "":  # its file is missing, so it cannot be compared
        keys = {key for key in keys if not key.startswith(f"{START}.")}
    # These sections hold all of fairseq's defaults, whose keys differ between its versions. Only a
    # key that both have, one of them without a value, is a setting.
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
