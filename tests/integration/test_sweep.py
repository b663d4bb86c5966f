"""A sweep trains what each of its jobs says: another row never goes on from the one before."""

import subprocess
from pathlib import Path

import pytest
import torch

from fairseq_plugins.data.prepare import prepare_toy
from tests.integration.helpers import (
    REPOSITORY,
    USER_DIR,
    hydra_train_config,
    load_checkpoint,
    overrides,
)

RECIPE = REPOSITORY / "configs" / "wikitext103_lm.yaml"
ROWS = ("rope", "alibi", "base")


def train(data: Path, *words: str) -> None:
    settings = {
        "common.user_dir": USER_DIR,
        "task.data": data,
        "optimization.max_update": 3,
        "dataset.batch_size": 4,
        "dataset.disable_validation": False,
    }
    hydra_train_config(RECIPE, *words, "scale=toy", *overrides(settings))


def states(folder: Path) -> dict[str, dict]:
    """The last checkpoints below a folder by the encoding of their model."""
    found = [load_checkpoint(path) for path in folder.rglob("checkpoint_last.pt")]
    return {state["cfg"]["model"]["position_encoding"]: state for state in found}


@pytest.mark.slow
def test_a_sweep_over_rows_trains_each_of_them(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swept").mkdir()
    monkeypatch.chdir(tmp_path / "swept")
    train(data, "-m", f"model={','.join(ROWS)}")
    swept = states(Path())
    assert set(swept) == set(ROWS)
    assert all(state["optimizer_history"][-1]["num_updates"] == 3 for state in swept.values())
    # As trained alone, bit for bit.
    (tmp_path / "alone").mkdir()
    monkeypatch.chdir(tmp_path / "alone")
    train(data, "model=base")
    alone = states(Path())["base"]["model"]
    assert alone.keys() == swept["base"]["model"].keys()
    assert all(torch.equal(alone[key], swept["base"]["model"][key]) for key in alone)
    # Another model in the same process leaves its best validation loss behind.
    assert len(list(Path("../swept").rglob("checkpoint_best.pt"))) == len(ROWS)
    (hydra,) = {path.parents[1] for path in Path("../swept").rglob("hydra_train.log")}
    assert len(list(hydra.rglob("hydra_train.log"))) == len(ROWS)


@pytest.mark.slow
def test_jobs_of_submitit_train_each_row(tmp_path: Path) -> None:
    """In processes of their own, which compose their configuration again."""
    for name in ("configs", "fairseq_plugins"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    sentences = {"train": 900, "valid": 50, "test": 50}
    prepare_toy(tmp_path / "data" / "toy", seed=1, sentences=sentences)
    words = ["-m", "--config-dir", "configs", "--config-name", RECIPE.stem, "scale=toy"]
    words += [f"model={','.join(ROWS)}", "run=local", "optimization.max_update=3"]
    words += ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5"]
    subprocess.run(["fairseq-hydra-train", *words], cwd=tmp_path, check=True)
    found = states(tmp_path / "checkpoints")
    assert set(found) == set(ROWS)
    assert all(state["optimizer_history"][-1]["num_updates"] == 3 for state in found.values())
    (sweep,) = tmp_path.glob("multirun/*/*")
    assert {path.parent.name for path in sweep.rglob("hydra_train.log")} == {"0", "1", "2"}
    assert len(list(sweep.glob(".submitit/*/*_0_log.out"))) == len(ROWS)
