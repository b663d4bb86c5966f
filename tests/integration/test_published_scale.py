"""Scale `published` from a published-style folder to pages, with a model of two small layers."""

import json
import random
from pathlib import Path

import pytest
import yaml

from fairseq_plugins.common.files import write_json
from fairseq_plugins.squad.generated import generate_questions
from tests.integration import toy_repository as toy
from tests.integration.toy_repository import run
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


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a start, data in its tokenizer, and budgets of a few updates."""
    folder = toy.make_repository(tmp_path_factory.mktemp("published"), {}, ())
    model = write_bert_folder(folder / "bert", max_positions=64)
    run(folder, "fairseq_plugins", "prepare", "start", "--from", str(model))
    tokenizer = ("--tokenizer", "checkpoints/start")
    text = ("--from", str(write_text(folder / "text")), "--output", "data/novels-start")
    run(folder, "fairseq_plugins", "prepare", "mlm", "text", *text, *tokenizer)
    raw = folder / "questions"
    raw.mkdir()
    for version in ("1.1", "2.0"):
        for split, texts in (("train", 20), ("dev", 5)):
            content = generate_questions(f"1/{split}", texts, version)
            write_json(raw / f"{split}-v{version}.json", content)
        sizes = ("--max-length", "48", "--stride", "16", "--max-query-length", "16")
        squad = (
            "--from",
            str(raw),
            "--version",
            version,
            "--output",
            f"data/squad-v{version}-start",
        )
        run(folder, "fairseq_plugins", "prepare", "squad", *squad, *tokenizer, *sizes)
    configs = folder / "configs"
    change(configs / "adapted/published.yaml", task={"tokens_per_sample": 48}, **BUDGET)
    stage = configs / "mlm_stage/published/samples_128.yaml"
    change(stage, task={"tokens_per_sample": 24}, **BUDGET)
    change(configs / "scale/squad/published.yaml", **BUDGET)
    return folder


def read(root: Path, table: str, name: str) -> dict[str, object]:
    path = root / "results" / table / "published" / f"{name}.json"
    found: dict[str, object] = json.loads(path.read_text())
    return found


@pytest.mark.timeout(600)
def test_questions_are_answered_by_models_that_came_back(root: Path) -> None:
    words = (
        "bert_table4",
        "--scale",
        "published",
        "--rows",
        "learned,learned_anew",
        "--seeds",
        "2",
    )
    output = run(root, "fairseq_plugins", "table", *words, "--jobs", "1")
    for row in ("learned", "learned_anew"):
        assert f"{row}-vanilla-s2: done" in output
    kept, anew = (
        read(root, "bert_adapted", f"{row}-vanilla-s2")["metrics"]
        for row in ("learned", "learned_anew")
    )
    assert kept["cosine"] == pytest.approx(1, abs=1e-4) and kept["valid_error"] < 1e-6
    assert anew["cosine"] < 0.999
    assert anew["tokens"] == UPDATES * 4 * (24 + 48)
    result = read(root, "bert_table4", "learned_anew-vanilla-s2")
    assert result["metrics"]["start_cosine"] == anew["cosine"]
    model = result["config"]["trainings"]["SQuAD v1"]["model"]
    assert (model["encoder_layers"], model["encoder_embed_dim"]) == (2, 32)
    page = (root / "results/bert_table4/published.md").read_text()
    assert "learned_anew" in page and "cosine" in page


@pytest.mark.timeout(600)
def test_the_attention_is_exchanged_too(root: Path) -> None:
    words = ("lrpe_adapted", "--scale", "published", "--rows", "lrpe_type2", "--seeds", "1")
    run(root, "fairseq_plugins", "table", *words, "--attention", "linear")
    metrics = read(root, "lrpe_adapted", "lrpe_type2-linear-s1")["metrics"]
    assert 0 < metrics["cosine"] < 0.9999
    assert [tokens for tokens, _ in metrics["cosines"]] == [288, 576, 1152, 1728]
