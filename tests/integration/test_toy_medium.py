"""From generated text to the BERT paper's Figure 7, by its command alone, at scale toy."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from tests.integration import toy_repository as toy
from tests.integration.toy_repository import run

UPDATES = 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with short parts and fine-tunings at scale toy and their data."""
    folder = toy.make_repository(tmp_path, {}, (toy.MLM, *toy.SQUAD))
    for path in (folder / "configs/bert_figure7/toy").glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        content["optimization"] = {"max_update": UPDATES}
        content["lr_scheduler"] = content.get("lr_scheduler", {}) | {"warmup_updates": 5}
        content["checkpoint"] = {"save_interval_updates": UPDATES}
        path.write_text("# @package _global_\n" + yaml.safe_dump(content))
    return folder


@pytest.mark.slow  # nine trainings, and SQuAD predicted and evaluated six times
@pytest.mark.timeout(900)
def test_squad_after_each_part_of_a_pretraining(root: Path) -> None:
    words = ("--scale", "toy", "--rows", "learned")
    output = run(root, "fairseq_plugins", "table", "bert_figure7", *words)
    assert "learned-vanilla-s1: done" in output
    result = json.loads((root / "results/bert_figure7/toy/learned-vanilla-s1.json").read_text())
    parts = result["metrics"]["parts"]
    assert [part["samples"] for part in parts] == [16, 16, 64]
    assert [part["updates"] for part in parts] == [UPDATES, 2 * UPDATES, 3 * UPDATES]
    assert parts[1]["valid_loss"] < parts[0]["valid_loss"]  # it went on
    assert all(0 <= part["v1_exact"] <= part["v1_f1"] <= 100 for part in parts)
    assert result["metrics"]["updates"] == 9 * UPDATES
    # Positions beyond the short samples stay as they were drawn but for the weight decay, until
    # long ones come.
    first, second, third = (table(root, f"part_{number}") for number in (1, 2, 3))
    assert first.shape == (64, 64)
    assert torch.cosine_similarity(first, second)[16:].min() > 0.99999
    assert torch.cosine_similarity(first, second)[:16].max() < 0.999
    assert torch.cosine_similarity(second, third)[16:60].max() < 0.999
    page = (root / "results/bert_figure7/toy.md").read_text()
    assert "on samples of 16, 16, 64 tokens" in page
    for suffix in ("png", "svg"):
        assert (root / f"results/bert_figure7/toy.{suffix}").stat().st_size > 10_000


def table(root: Path, part: str) -> torch.Tensor:
    """The learned positions after a part: (T, C)."""
    path = root / "checkpoints/bert_figure7/toy/learned-vanilla-s1" / part / "checkpoint_best.pt"
    weights = torch.load(path, weights_only=True)["model"]
    (name,) = (name for name in weights if name.endswith("position_embedding.weight"))
    found: torch.Tensor = weights[name]
    return found
