"""A table of each family that is killed at any moment ends with the numbers of one that is not."""

import json
import random
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration import toy_repository as toy

KILLS = 20
# Of a run's metrics, what depends on the clock.
TIMED = {"train_seconds", "tokens_per_second"}
# Short, and saving so often that most moments lie between two checkpoints.
BRIEF = {
    "optimization": {"max_update": 40},
    "lr_scheduler": {"warmup_updates": 5},
    "checkpoint": {"save_interval_updates": 8},
}


@dataclass(frozen=True)
class Family:
    """A table with the scales that it trains at and the data that it needs."""

    table: str
    attention: str
    scales: Sequence[str]
    data: Sequence[Sequence[str]]


FAMILIES = {
    "language model": Family("table2", "linear", ("lm/toy.yaml",), (toy.LM,)),
    "GLUE": Family("table3", "vanilla", ("mlm/toy.yaml", "glue/toy.yaml"), (toy.MLM, toy.GLUE)),
    "SQuAD": Family(
        "bert_table4", "vanilla", ("mlm/toy.yaml", "squad/toy.yaml"), (toy.MLM, *toy.SQUAD)
    ),
    "translation": Family("table4", "linear", ("mt/toy.yaml",), (toy.MT,)),
}


def metrics(root: Path, table: str) -> dict[str, Mapping[str, Any]]:
    """Result -> its metrics without times, of a table and of all that it starts from."""
    found = {}
    for path in sorted((root / "results").glob("*/toy/*.json")):
        numbers = json.loads(path.read_text())["metrics"]
        found[f"{path.parent.parent.name}/{path.name}"] = {
            name: value for name, value in numbers.items() if name not in TIMED
        }
    assert any(name.startswith(table) for name in found)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)  # some twenty-five starts of a table, each imports PyTorch and fairseq
@pytest.mark.parametrize("name", FAMILIES)
def test_killed_at_random_moments(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    root = toy.make_repository(tmp_path, dict.fromkeys(family.scales, BRIEF), family.data)
    words = ("fairseq_plugins", "table", family.table, "--scale", "toy",
             "--rows", "lrpe_type2", "--attention", family.attention)  # fmt: skip
    begun = time.monotonic()
    toy.run(root, *words)
    seconds = time.monotonic() - begun
    expected = metrics(root, family.table)

    def begin_again() -> None:
        shutil.rmtree(root / "results")
        shutil.rmtree(root / "checkpoints")

    begin_again()
    moments, kills = random.Random(name), 0
    while kills < KILLS:
        process = toy.start(root, *words)
        try:
            output, _ = process.communicate(timeout=moments.uniform(0.5, 0.9 * seconds))
        except subprocess.TimeoutExpired:
            toy.kill(process)
            kills += 1
            continue
        assert process.returncode == 0, output
        assert metrics(root, family.table) == expected
        begin_again()
    toy.run(root, *words)
    assert metrics(root, family.table) == expected
