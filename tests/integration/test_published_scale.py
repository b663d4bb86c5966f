"""Scale `published` from a published-style folder to pages, with a model of two small layers."""

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.files import write_json
from fairseq_plugins.data import prepare_mlm
from fairseq_plugins.runner import table_runner
from fairseq_plugins.runner.launcher import PreloadedLauncher
from fairseq_plugins.squad.generated import generate_questions
from tests.integration import toy_repository as toy
from tests.preprocessing import preprocess_here
from tests.published import write_bert_folder

WORDS = ("the", "cat", "sat", "on", "mat", "and", "dog", "is", "not", "what", "who", "where")
UPDATES = 6
BUDGET = {
    "optimization": {"max_update": UPDATES},
    "lr_scheduler": {"warmup_updates": 2},
    "checkpoint": {"save_interval_updates": 3},
    "dataset": {"batch_size": 4},
}


def change(path: Path, **groups: dict[str, object]) -> None:
    """Set options of a configuration beside or in place of its own."""
    content = yaml.safe_load(path.read_text())
    for group, options in groups.items():
        content.setdefault(group, {}).update(options)
    path.write_text("# @package _global_\n" + yaml.safe_dump(content))


def write_text(folder: Path) -> Path:
    """Plain text of 400 lines to train on and 40 of each other split."""
    words = random.Random(1)
    folder.mkdir()
    for split, lines in (("train", 400), ("valid", 40), ("test", 40)):
        text = "".join(" ".join(words.choices(WORDS, k=12)) + "\n" for _ in range(lines))
        (folder / f"text.{split}.txt").write_text(text)
    return folder


def no_lines(lines: list[str]) -> None:
    """Nobody follows a log here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.make_repository(tmp_path_factory.mktemp("published"), {}, ())


@pytest.fixture(scope="module")
def launcher(folder: Path) -> Iterator[PreloadedLauncher]:
    """One process with PyTorch and fairseq imported, from which every command here is forked."""
    launcher = PreloadedLauncher(folder, {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)})
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def root(folder: Path, launcher: PreloadedLauncher) -> Path:
    """A repository with a start, data in its tokenizer, and budgets of a few updates."""

    def prepare(*words: str) -> None:
        log = folder / "prepare.log"
        command = [sys.executable, "-m", "fairseq_plugins", "prepare", *words]
        assert launcher(command, log, no_lines) == 0, log.read_text()

    model = write_bert_folder(folder / "bert", max_positions=64)
    prepare("start", "--from", str(model))
    tokenizer = ("--tokenizer", str(folder / "checkpoints" / "start"))
    words = ["text", "--from", str(write_text(folder / "text")), *tokenizer, "--workers", "1"]
    with preprocess_here():
        assert prepare_mlm.main([*words, "--output", str(folder / "data" / "novels-start")]) == 0
    raw = folder / "questions"
    raw.mkdir()
    for version in ("1.1", "2.0"):
        for split, texts in (("train", 8), ("dev", 2)):
            content = generate_questions(f"1/{split}", texts, version)
            write_json(raw / f"{split}-v{version}.json", content)
        places = ("--from", str(raw), "--output", f"data/squad-v{version}-start")
        sizes = ("--max-length", "48", "--stride", "16", "--max-query-length", "16")
        prepare("squad", *places, "--version", version, *tokenizer, *sizes)
    configs = folder / "configs"
    change(configs / "adapted/published.yaml", task={"tokens_per_sample": 48}, **BUDGET)
    stage = configs / "mlm_stage/published/samples_128.yaml"
    change(stage, task={"tokens_per_sample": 24}, **BUDGET)
    change(configs / "scale/squad/published.yaml", **BUDGET)
    return folder


@pytest.fixture
def table(
    root: Path, launcher: PreloadedLauncher, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Make a table as `fairseq-pe table` does, with the launcher that is there."""

    def make(*words: str) -> None:
        assert main([*words, "--scale", "published", "--jobs", "1"], root) == 0

    monkeypatch.setattr(
        table_runner, "get_launchers", lambda root, gpus, environments: nullcontext([launcher])
    )
    return make


def read(root: Path, table: str, name: str) -> dict[str, Any]:
    path = root / "results" / table / "published" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_encoding_that_is_kept_is_near_its_start(root: Path, table: Callable[..., None]) -> None:
    table("bert_adapted", "--rows", "learned", "--seeds", "2")
    kept = read(root, "bert_adapted", "learned-vanilla-s2")["metrics"]
    assert kept["cosine"] == pytest.approx(1, abs=1e-4) and kept["valid_error"] < 1e-6


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_questions_are_answered_by_models_that_came_back(
    root: Path, table: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    table("bert_table4", "--rows", "learned_anew", "--seeds", "2")
    assert "learned_anew-vanilla-s2: done" in capsys.readouterr().out
    anew = read(root, "bert_adapted", "learned_anew-vanilla-s2")["metrics"]
    assert anew["cosine"] < 0.999
    assert anew["tokens"] == UPDATES * 4 * (24 + 48)
    result = read(root, "bert_table4", "learned_anew-vanilla-s2")
    assert result["metrics"]["start_cosine"] == anew["cosine"]
    model = result["config"]["trainings"]["SQuAD v1"]["model"]
    assert (model["encoder_layers"], model["encoder_embed_dim"]) == (2, 32)
    page = (root / "results/bert_table4/published.md").read_text()
    assert "learned_anew" in page and "cosine" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_attention_is_exchanged_too(root: Path, table: Callable[..., None]) -> None:
    table("lrpe_adapted", "--rows", "lrpe_type2", "--seeds", "1", "--attention", "linear")
    metrics = read(root, "lrpe_adapted", "lrpe_type2-linear-s1")["metrics"]
    assert 0 < metrics["cosine"] < 0.9999
    assert [tokens for tokens, _ in metrics["cosines"]] == [288, 576, 1152, 1728]
