"""From generated text to filled pages of lengths, by the commands alone, at scale toy."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration import toy_repository as toy
from tests.integration.toy_repository import run

BRIEF = {
    "optimization": {"max_update": 30},
    "lr_scheduler": {"warmup_updates": 5},
    "checkpoint": {"save_interval_updates": 15},
}
TABLE = ("fairseq_plugins", "table")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with short trainings at scale toy and the data of three tasks."""
    scales = [f"{name}/toy.yaml" for name in ("lm", "mlm", "mt")]
    folder = tmp_path_factory.mktemp("repository")
    return toy.make_repository(folder, dict.fromkeys(scales, BRIEF), (toy.LM, toy.MLM, toy.MT))


def metrics(root: Path, table: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / f"results/{table}/toy/{name}.json").read_text())
    return found["metrics"]


@pytest.mark.slow  # some twenty commands, each of which imports PyTorch and fairseq
@pytest.mark.timeout(900)
def test_trained_rows_are_measured_beyond_their_length(root: Path) -> None:
    words = ("--scale", "toy", "--attention", "vanilla")
    run(root, *TABLE, "table2", *words, "--rows", "rope,learned")
    before = (root / "checkpoints/table2/toy/rope-vanilla-s1/train.log").read_bytes()
    # Without --rows: what is trained, and other lengths of its table, and no more.
    output = run(root, *TABLE, "extrapolation", *words, "--lengths", "1x,2x")
    assert "Not trained yet, and left out unless named in --rows" in output
    assert (root / "checkpoints/table2/toy/rope-vanilla-s1/train.log").read_bytes() == before
    made = {path.name for path in (root / "results/extrapolation/toy").glob("*.json")}
    tables = ("", "_copied", "_hierarchical", "_interpolated")
    assert made == {f"{row}-vanilla-s1.json" for row in ("rope", *(f"learned{t}" for t in tables))}
    rope = metrics(root, "extrapolation", "rope-vanilla-s1")
    assert rope["ppl_2x"] > 1 and rope["ppl_2x_sliding"] > 1 and "ppl_4x" not in rope
    assert len(rope["by_position"]["2x"]) == 8
    learned = metrics(root, "extrapolation", "learned-vanilla-s1")
    assert learned["ppl_1x"] > 1 and learned["ppl_2x"] is None
    assert learned["trained_length"] == 64 and "position 64" in learned["reasons"]["2x"]
    # More lengths are measured beside those that there are; then all is done.
    output = run(root, *TABLE, "extrapolation", *words, "--rows", "rope", "--lengths", "4x")
    assert "it has no 4x; it is completed" in output
    more = metrics(root, "extrapolation", "rope-vanilla-s1")
    # So short a text that windows of 4x do not fill it.
    assert 0 < more["tokens"] <= rope["tokens"] and more["tokens"] % 256 == 0
    assert min(more[key] for key in ("ppl_1x", "ppl_2x", "ppl_4x")) > 1
    output = run(root, *TABLE, "extrapolation", *words, "--rows", "rope", "--lengths", "1x")
    assert "skipped" in output
    page = (root / "results/extrapolation/toy.md").read_text()
    assert "## In a sliding window" in page and "No number for `learned` (vanilla) at 2x:" in page
    assert (root / "results/extrapolation/toy.svg").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_masked_and_translation_models_too(root: Path) -> None:
    words = ("--scale", "toy", "--attention", "vanilla", "--rows", "sinusoidal")
    run(root, *TABLE, "extrapolation_masked", *words, "--lengths", "1x,2x")
    masked = metrics(root, "extrapolation_masked", "sinusoidal-vanilla-s1")
    assert masked["ppl_1x"] > 1 and masked["ppl_2x"] > 1 and "ppl_1x_sliding" not in masked
    run(root, *TABLE, "translation_lengths", *words)
    found = metrics(root, "translation_lengths", "sinusoidal-vanilla-s1")
    assert sum(found["sentences"].values()) == 60
    assert 0 <= found["test_bleu"] <= 100
    assert found["bleu_51_more"] is None
    assert "Test sentences" in (root / "results/translation_lengths/toy.md").read_text()
