"""Recipes of results, each stored once, in a file that its digest names.

The file of a result has the settings of its own run, and the digest of the recipe with all others:

    <results>/<table>/<scale>/rope-linear-s1.json: "config": {"recipe": "<digest>", "model": {...}}
    <results>/<table>/<scale>/recipes/<digest>.json: {"task": {...}, "model": null, ...}

Older files hold the whole configuration; both forms are read into the same result.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.records.runs import Run, Study

Config = dict[str, Any]

_CELL = {"table": str, "scale": str, "row": str, "attention": str, "seed": int}
_TABLES = ("metrics", "config", "data", "versions", "hardware")

FOLDER = "recipes"  # beside the files of results
SCHEMA = 2  # of the files; older ones, of schema 1, have no number
RECIPE = "recipe"  # key of the digest in a configuration
_DIGITS = 16  # of a digest, hexadecimal
_MODEL = "model"
# Settings that follow from a run's row, seed and folder; its file holds them beside the model's.
_OF_THE_RUN = (
    ("checkpoint", "save_dir"),
    ("checkpoint", "finetune_from_model"),
    ("common", "seed"),
)


class NewerResult(ValueError):
    """A result with a key or a schema that this version does not know; it is not damaged."""


def digest_of(recipe: Mapping[str, Any]) -> str:
    """Return the start of the SHA-256 of a recipe's JSON with sorted keys and without spaces."""
    text = json.dumps(recipe, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result with its whole configuration, its recipes in `recipes` beside it first.

    Raises OSError if a file cannot be written.
    """
    short, recipes = split_config(result["config"])
    for digest, recipe in recipes.items():
        target = path.parent / FOLDER / f"{digest}.json"
        try:
            read_recipe(target)
        except ValueError:  # missing, damaged or changed
            write_json(target, recipe)
    write_json(path, {"schema": SCHEMA, **result, "config": short})


def read_content(path: Path) -> Any:
    """Read a result's file of either schema, with its whole configuration, without other checks.

    Raises OSError, or ValueError for no JSON and for a missing or damaged recipe.
    """
    return complete_result(json.loads(path.read_bytes()), path.parent)


def complete_result(content: Any, folder: Path) -> Any:
    """Return the content of a result's file, of either schema, with its whole configuration.

    folder: of the file. Content that is no result is returned as it is. Raises ValueError if a
    recipe is missing or damaged, or the schema is unknown.
    """
    if not isinstance(content, dict):
        return content
    schema = content.get("schema", SCHEMA)
    if type(schema) is not int or schema != SCHEMA:
        kind = NewerResult if type(schema) is int and schema > SCHEMA else ValueError
        raise kind(f"schema must be {SCHEMA} or absent, but is {schema!r} instead")
    whole = {key: value for key, value in content.items() if key != "schema"}
    if isinstance(whole.get("config"), dict):
        recipes = folder / FOLDER
        whole["config"] = _of_each_training(whole["config"], lambda one: _complete(one, recipes))
    return whole


def split_config(config: Config) -> tuple[Config, dict[str, Config]]:
    """Separate a configuration into the settings of its run and the recipes that they complete.

    Returns:
        The configuration with a digest in place of each recipe, and the recipes by digest. A
        recipe has null for each setting that the configuration keeps.
    """
    recipes: dict[str, Config] = {}

    def separate(training: Config) -> Config:
        own, recipe = _split(training)
        digest = digest_of(recipe)
        recipes[digest] = recipe
        return {RECIPE: digest, **own}

    return _of_each_training(config, separate), recipes


def read_recipe(path: Path) -> Config:
    """Read a recipe and compare it with its name.

    Raises ValueError: it is missing or damaged, or its content has another digest than its name.
    """
    shown = "/".join(path.parts[-4:])
    try:
        recipe = json.loads(path.read_bytes())
        digest = digest_of(recipe) if isinstance(recipe, dict) else "no object"
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"its recipe {shown} cannot be read ({error})") from None
    if digest != path.stem:
        raise ValueError(f"its recipe {shown} has been changed: its digest is {digest}")
    return dict(recipe)


def _of_each_training(config: Config, change: Callable[[Any], Any]) -> Config:
    """Change the configuration of a run's only training, or of each of its trainings."""
    trainings = config.get("trainings")
    if not isinstance(trainings, dict):
        return dict(change(config))
    return {"trainings": {name: change(training) for name, training in trainings.items()}}


def _split(training: Config) -> tuple[Config, Config]:
    """Return the settings of a run and the recipe of one training."""
    if not isinstance(training, dict) or _MODEL not in training:
        raise ValueError("its configuration has no model")
    own: Config = {_MODEL: training[_MODEL]}
    recipe = {**training, _MODEL: None}
    for section, key in _OF_THE_RUN:
        settings = recipe.get(section)
        if isinstance(settings, dict) and settings.get(key) is not None:
            own.setdefault(section, {})[key] = settings[key]
            recipe[section] = {**settings, key: None}
    return own, recipe


def _complete(training: Any, folder: Path) -> Any:
    """Return the whole configuration of one training."""
    if not isinstance(training, dict) or RECIPE not in training:
        return training
    digest = training[RECIPE]
    if not isinstance(digest, str) or not re.fullmatch(rf"[0-9a-f]{{{_DIGITS}}}", digest):
        raise ValueError(f"config.{RECIPE} must be {_DIGITS} hexadecimal digits, but is {digest!r}")
    whole = read_recipe(folder / f"{digest}.json")
    for section, own in training.items():
        if section != RECIPE:
            whole[section] = {**(whole.get(section) or {}), **own} if isinstance(own, dict) else own
    return whole


def fault_of(path: Path) -> str:
    """Describe the first fault of a result's file, without its schema, which is slow to import.

    The file must be complete JSON of the run that its path names, with finite metrics. Empty for no
    fault. path: <results>/<table>/<scale or study>/<row>-<attention>-s<seed>.json.
    """
    try:
        content = read_content(path)
    except (OSError, ValueError, RecursionError) as error:
        return f"it cannot be read ({error})"
    if not isinstance(content, dict):
        return "it is no table of JSON"
    wrong = [key for key, kind in _CELL.items() if type(content.get(key)) is not kind]
    wrong += [key for key in _TABLES if not isinstance(content.get(key), dict) or not content[key]]
    if wrong:
        return f"it has no {wrong[0]}, or another kind of it"
    try:
        json.dumps(content["metrics"], allow_nan=False)
    except ValueError:
        return "its metrics are not all finite"
    try:
        study = Study.read(content.get("study"))
        own = Run(**{key: content[key] for key in _CELL}, study=study).result
    except (LookupError, TypeError, AttributeError):
        return "its study is damaged"
    if own.parts[-3:] != path.parts[-3:]:
        return f"it is the result {root_folder('results').name}/{'/'.join(own.parts[-3:])}"
    return ""
