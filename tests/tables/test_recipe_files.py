"""Recipes of results are stored once, and both forms of a result's file are the same result."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.common.files import write_json
from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.records.recipe_files import (
    FOLDER,
    digest_of,
    fault_of,
    split_config,
    write_result,
)
from fairseq_plugins.records.results import Result, load_result, read_result, run_of

ROOT = Path(__file__).resolve().parents[2]
ONE = "table2/mini/rope-linear-s1.json"  # of one training
SEVERAL = "bert_table3/published/learned-vanilla-s1.json"


def read(path: Path) -> Result:
    return load_result(path, experiment_of(path.parts[-3]).metrics)


def committed(name: str) -> Result:
    return read(ROOT / "results" / name)


def stored(root: Path, result: Result) -> Path:
    path = root / run_of(result).result
    write_result(path, result)
    return path


def recipes(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).iterdir())


@pytest.mark.parametrize("name", [ONE, SEVERAL])
def test_both_forms_are_the_same_result(tmp_path: Path, name: str) -> None:
    result = committed(name)
    path = stored(tmp_path, result)
    assert json.dumps(read(path)) == json.dumps(result)  # in the same order too
    assert not fault_of(path)
    size = path.stat().st_size
    write_json(path, result)
    assert read(path) == result and not fault_of(path)
    assert size < path.stat().st_size / 1.5


def test_rows_and_seeds_share_recipes(tmp_path: Path) -> None:
    for name in ("shaw_only-vanilla-s2", "sinusoidal-vanilla-s1", "sinusoidal-vanilla-s2"):
        path = stored(tmp_path, committed(f"bert_table2/mini/{name}.json"))
    assert len(recipes(path.parent)) == 2  # pre-training and fine-tuning


def test_the_digest_is_of_the_content_and_not_of_its_order() -> None:
    _, found = split_config(committed(ONE)["config"])
    ((digest, recipe),) = found.items()
    assert digest_of(dict(reversed(recipe.items()))) == digest
    assert digest_of({**recipe, "task": {}}) != digest


def change(path: Path) -> None:
    recipe = json.loads(path.read_bytes())
    recipe["optimization"]["max_update"] += 1
    write_json(path, recipe)


@pytest.mark.parametrize(
    "damage", [change, Path.unlink, lambda path: path.write_text("[]")], ids=[0, 1, 2]
)
def test_a_recipe_that_is_not_what_its_name_says_is_refused(tmp_path: Path, damage: Any) -> None:
    path = stored(tmp_path, committed(ONE))
    (recipe,) = recipes(path.parent)
    damage(recipe)
    said: list[str] = []
    assert read_result(path, experiment_of("table2").metrics, said.append) is None
    assert recipe.name in said[0] and path.name in said[0]
    assert recipe.name in fault_of(path)
    stored(tmp_path, committed(ONE))  # as a run that is made again
    assert read(path) == committed(ONE)


@pytest.mark.parametrize(
    "more", [{"schema": 3}, {"config": {"recipe": "../rope"}}, {"config": {"recipe": 7}}]
)
def test_what_no_version_has_written_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    path = stored(tmp_path, committed(ONE))
    write_json(path, {**json.loads(path.read_bytes()), **more})
    with pytest.raises(ValueError, match=r"schema must be 2|config\.recipe must be 16"):
        read(path)
