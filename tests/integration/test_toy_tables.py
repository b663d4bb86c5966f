"""From generated text to filled rows of the tables of fine-tuning, by their commands alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration import toy_repository as toy
from tests.integration.toy_repository import run

FEW = {"max_update": 30}  # of each training
BRIEF = {
    "optimization": FEW,
    "lr_scheduler": {"warmup_updates": 5},
    "checkpoint": {"save_interval_updates": 15},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with short trainings at scale toy and all data of it."""
    scales = [f"{name}/toy.yaml" for name in ("mlm", "glue", "squad")]
    return toy.make_repository(
        tmp_path_factory.mktemp("repository"),
        dict.fromkeys(scales, BRIEF),
        (toy.MLM, toy.GLUE, *toy.SQUAD),
    )


def result(root: Path, table: str, row: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / f"results/{table}/toy/{row}.json").read_text())
    return found["metrics"] | {"commands": found["command"]}


@pytest.mark.slow  # some twenty commands, each of which imports PyTorch and fairseq
@pytest.mark.timeout(900)
def test_rows_are_pretrained_fine_tuned_and_filled(root: Path) -> None:
    words = ("--scale", "toy", "--rows", "rope", "--attention", "vanilla")
    output = run(root, "fairseq_plugins", "table", "table3", *words)
    assert "rope-vanilla-s1: done, AVG" in output
    glue = result(root, "table3", "rope-vanilla-s1")
    assert set(glue["tried"]) == {"Order-lr0.001", "Place-lr0.001"}
    assert 0 < glue["average"] <= 100
    pretrained = result(root, "table8", "rope-vanilla-s1")
    assert [step for step, _ in pretrained["curve"]][-1] == FEW["max_update"]
    assert "| RoPE (`rope`) |" in (root / "results/table3/toy.md").read_text()

    run(root, "fairseq_plugins", "table", "bert_table4", *words)
    squad = result(root, "bert_table4", "rope-vanilla-s1")
    assert 0 <= squad["v1_exact"] <= squad["v1_f1"] <= 100
    assert any("fairseq_plugins.squad predict" in command for command in squad["commands"])
    # Of one model with a learned embedding, whose weights the row has continued from.
    start, continued = (
        result(root, table, f"{row}-vanilla-s1")
        for table, row in (("bert_start", "learned"), ("bert_continued", "rope"))
    )
    assert start["valid_loss"] > continued["valid_loss"]
    log = (root / "checkpoints/bert_continued/toy/rope-vanilla-s1/train.log").read_text()
    assert "init_from checkpoints/bert_start/toy/learned-vanilla-s1/checkpoint_best.pt" in log
    page = (root / "results/bert_table4/toy.md").read_text()
    assert "## Rows beyond the paper" in page and "`rope`" in page

    run(root, "fairseq_plugins", "table", "figure2", *words)
    curves = json.loads((root / "results/figure2/toy.json").read_text())["curves"]
    assert set(curves) == {"rope-vanilla-s1"}
    assert (root / "results/figure2/toy.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pretrained_row_is_measured_and_drawn(root: Path) -> None:
    words = ("--scale", "toy", "--rows", "rope", "--seeds", "1,2")
    output = run(root, "fairseq_plugins", "table", "bert_table2", *words)
    assert "rope-vanilla-s1: done, symmetry" in output
    one, other = (result(root, "bert_table2", f"rope-vanilla-s{seed}") for seed in (1, 2))
    assert one["length"] == other["length"] == 64
    assert 0 < one["monotonicity"] < 1 and one["symmetry"] > 0
    # So few words that both seeds draw all of them; each has a model of its own.
    assert one["words"] == other["words"] < 300
    assert one["symmetry"] != pytest.approx(other["symmetry"])
    assert (root / "results/bert_table2/toy.png").stat().st_size > 10_000
    assert "(2) |" in (root / "results/bert_table2/toy.md").read_text()
