"""A repository in a temporary folder, and results made up for it."""

import itertools
import math
import shutil
import subprocess
import types
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import launcher, run_execution, slurm_queue, slurm_submission
from tests.pictures import save_points
from tests.tables.fake_slurm import FakeSlurm

REPOSITORY = Path(__file__).resolve().parents[2]
MakeResult = Callable[..., Result]


@pytest.fixture(scope="session")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's configurations, with a scale toy that does not follow their tuning."""
    copied = tmp_path_factory.mktemp("repository") / "configs"
    shutil.copytree(REPOSITORY / "configs", copied)
    scale = copied / "scale" / "lm" / "toy.yaml"
    content = yaml.safe_load(scale.read_text())
    content["optimization"] |= {"max_update": 250, "lr": [0.002]}
    content["dataset"] |= {"disable_validation": False}
    scale.write_text("# @package _global_\n" + yaml.safe_dump(content))
    return copied


@pytest.fixture
def real_pictures() -> None:
    """Figures as users see them, for tests that look at their files."""


@pytest.fixture(autouse=True)
def _quick_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of a table draws all of its figures, which takes half of a test's time."""
    if "real_pictures" not in request.fixturenames:
        save_points(monkeypatch)


@pytest.fixture(autouse=True)
def _different_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record another second in each result, so that one that is made again differs."""
    seconds = itertools.count()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=next(seconds))

    monkeypatch.setattr(run_execution, "datetime", Clock)


@pytest.fixture
def root(tmp_path: Path, configs: Path) -> Path:
    """A repository with configurations, and toy data as far as the runner looks at it."""
    (tmp_path / "configs").symlink_to(configs)
    data = tmp_path / "data" / "toy"
    data.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        for suffix in ("bin", "idx"):
            (data / f"{split}.{suffix}").touch()
    (data / "dict.txt").write_text("a 3\nb 2\nc 1\n")
    (data / "data.json").write_text('{"request": {"corpus": "embedded"}, "from": "/home/x/y"}')
    return tmp_path


@pytest.fixture
def quick_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of PreloadedLauncher that import torch alone, in seconds."""
    few = launcher._PRELOADED.replace(".serve()", ".MODULES = ()\npreloaded.serve()")
    monkeypatch.setattr(launcher, "_PRELOADED", few)


@pytest.fixture
def place(root: Path) -> Path:
    """A repository with all data of scale toy, as far as the runner looks at it."""
    for folder in ("toy-mlm", "toy-squad-v1.1", "toy-squad-v2.0"):
        (root / "data" / folder).mkdir()
        for path in (root / "data" / "toy").iterdir():
            (root / "data" / folder / path.name).write_bytes(path.read_bytes())
    for task in ("Order", "Place"):
        (root / "data" / "toy-glue" / task / "input0").mkdir(parents=True)
        for split in ("train", "valid"):
            (root / "data" / "toy-glue" / task / "input0" / f"{split}.bin").touch()
        (root / "data" / "toy-glue" / task / "data.json").write_text('{"request": {"task": "x"}}')
    return root


@pytest.fixture
def cluster(place: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Slurm as that repository sees it."""
    fake = FakeSlurm(place)
    own = types.SimpleNamespace(
        run=fake.run, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )
    monkeypatch.setattr(slurm_submission, "subprocess", own)
    monkeypatch.setattr(slurm_queue, "subprocess", own)
    return fake


@pytest.fixture
def make_result() -> MakeResult:
    """A complete result with chosen perplexities and otherwise plausible values."""

    def make(
        row: str, attention: str, seed: int, test: float, valid: float | None = None, **more: Any
    ) -> Result:
        run = Run(more.pop("table", "table2"), more.pop("scale", "mini"), row, attention, seed)
        return {
            "table": run.table,
            "row": row,
            "attention": attention,
            "scale": run.scale,
            "seed": seed,
            "metrics": {
                "valid_ppl": test if valid is None else valid,
                "test_ppl": test,
                "valid_loss": math.log2(test if valid is None else valid),
                "test_loss": math.log2(test),
                "train_seconds": 120.0,
                "updates": 900,
                "tokens_per_second": 30000.0,
                "parameters": 1_820_000,
            },
            "command": ["fairseq-hydra-train ..."],
            "config": deepcopy(more.pop("config", CONFIG)),
            "data": deepcopy(more.pop("data", DATA)),
            "commit": "0" * 40,
            "versions": {"torch": "2.13.0", "fairseq": "0.12.3.1"},
            "hardware": {"cpu": "A CPU", "cores": 2, "gpus": []},
            "wall_seconds": 150.0,
            "finished_at": "2026-01-01T00:00:00+00:00",
        }

    return make


CONFIG = {
    "task": {"tokens_per_sample": 128, "data": "data/wikitext-2-mini"},
    "model": {
        "decoder_layers": 4,
        "decoder_embed_dim": 128,
        "decoder_attention_heads": 4,
        "decoder_ffn_embed_dim": 512,
    },
    "dataset": {"batch_size": 32},
    "optimization": {"max_update": 900, "update_freq": [1], "lr": [0.001]},
    "distributed_training": {"distributed_world_size": 1},
}
DATA = {
    "request": {"corpus": "wikitext-2", "max_words": 8000},
    "splits": {"train": {"words": 2051910}},
    "dictionary_size": 8000,
}
