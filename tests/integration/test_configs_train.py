"""Every file of configs/model trains, under each attention that it can have."""

from pathlib import Path

import pytest

from fairseq_plugins.attention import ATTENTIONS, check_compatible
from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.reproduce.record.recipe import compose_recipe
from tests.integration.helpers import (
    REPOSITORY,
    USER_DIR,
    hydra_train_config,
    load_checkpoint,
    overrides,
)

RECIPE = REPOSITORY / "configs" / "wikitext103_lm.yaml"
ROWS = sorted(path.stem for path in (RECIPE.parent / "model").glob("*.yaml"))
CPU = {"common.cpu": True, "common.fp16": False, "dataset.num_workers": 0}


def train(row: str, attention: str, scale: str, data: Path, folder: Path, **more: object) -> None:
    """Three updates, a checkpoint after each."""
    settings = {
        **CPU,
        "common.user_dir": USER_DIR,
        "task.data": data,
        "model.attention_type": attention,
        "optimization.max_update": 3,
        "optimization.update_freq": [1],
        "checkpoint.save_dir": folder,
        **more,
    }
    hydra_train_config(RECIPE, f"model={row}", f"scale={scale}", *overrides(settings))
    state = load_checkpoint(folder / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 3
    assert state["cfg"]["model"]["attention_type"] == attention


@pytest.mark.parametrize("attention", list(ATTENTIONS))
@pytest.mark.parametrize("row", ROWS)
def test_every_row_trains_or_is_refused(
    row: str, attention: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compose_recipe(RECIPE.parent, RECIPE.stem, [f"model={row}", "scale=toy"]).model
    name, options = model.position_encoding, model.get("position_encoding_options", "")
    reason = None
    try:
        check_compatible(attention, name, options, causal=True)
    except IncompatibleEncodingError as error:
        reason = str(error)
    if reason is None:
        train(row, attention, "toy", data, tmp_path)
        return
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # raise, instead of printing and leaving
    with pytest.raises(IncompatibleEncodingError) as raised:
        train(row, attention, "toy", data, tmp_path)
    # The model names the part that does not fit, where the row stands for several encodings.
    for word in ("its hook", "a causal model"):
        assert str(raised.value).partition(word)[1:] == reason.partition(word)[1:]
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_every_scale_trains(scale: str, data: Path, tmp_path: Path) -> None:
    more = {"dataset.batch_size": 1, "dataset.disable_validation": True}
    train("lrpe_type2", "linear", scale, data, tmp_path, **more)
