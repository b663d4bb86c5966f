"""Every file of configs/model trains, under each attention that it can have."""

import copy
import functools
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from fairseq_plugins.attention import ATTENTIONS, check_compatible
from fairseq_plugins.encodings import IncompatibleEncodingError, get_entry
from tests.integration.helpers import REPOSITORY, USER_DIR, load_checkpoint, train_composed
from tests.quick import first_of_each_kind
from tests.recipes import compose_recipe

CONFIGS = REPOSITORY / "configs"
ROWS = sorted(path.stem for path in (CONFIGS / "model").glob("*.yaml"))


@functools.cache
def composed(row: str, scale: str) -> DictConfig:
    """The recipe of language models; not to be changed."""
    return compose_recipe(CONFIGS, "wikitext103_lm", [f"model={row}", f"scale={scale}"])


def train(row: str, attention: str, scale: str, data: Path, folder: Path, **more: object) -> None:
    """Three updates."""
    config = copy.deepcopy(composed(row, scale))
    settings = {
        "common.cpu": True,
        "common.fp16": False,
        "common.user_dir": USER_DIR,
        "dataset.num_workers": 0,
        "task.data": str(data),
        "model.attention_type": attention,
        "optimization.max_update": 3,
        "optimization.update_freq": [1],
        "checkpoint.save_dir": str(folder),
        **more,
    }
    for key, value in settings.items():
        OmegaConf.update(config, key, value)
    train_composed(config)
    state = load_checkpoint(folder / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 3
    assert state["cfg"]["model"]["attention_type"] == attention


def mechanism(cell: tuple[str, str]) -> tuple[object, ...]:
    """The attention, whether an encoding is added to words and what it refuses.

    Tests of models have all.
    """
    row, attention = cell
    entry = get_entry(row.removesuffix("_only"))
    refused = entry.refusal(causal=True) is None
    return attention, "embed" in entry.hooks, refused, row.endswith("_only")


CELLS = [(row, attention) for row in ROWS for attention in ATTENTIONS]


def refusal(attention: str, model: DictConfig) -> str | None:
    """Why a language model cannot have this attention with the encoding of a row."""
    name, options = model.position_encoding, model.get("position_encoding_options", "")
    try:
        check_compatible(attention, name, options, causal=True)
    except IncompatibleEncodingError as error:
        return str(error)
    return None


def without_names(reason: str) -> list[tuple[str, ...]]:
    """The model names the part that does not fit, where the row stands for several encodings."""
    return [reason.partition(word)[1:] for word in ("its hook", "a causal model")]


@pytest.mark.parametrize("cell", first_of_each_kind(CELLS, mechanism, "-".join))
def test_every_row_trains_or_is_refused(cell: tuple[str, str], data: Path, tmp_path: Path) -> None:
    row, attention = cell
    model = composed(row, "toy").model
    if refusal(attention, model) is None:
        train(row, attention, "toy", data, tmp_path)
        return
    with pytest.raises(IncompatibleEncodingError) as raised:
        train(row, attention, "toy", data, tmp_path)
    # What no attention of a causal model can have is refused before what this one cannot.
    reasons = filter(None, (refusal(name, model) for name in ATTENTIONS))
    assert without_names(str(raised.value)) in map(without_names, reasons)
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_every_scale_trains(scale: str, data: Path, tmp_path: Path) -> None:
    more = {"dataset.batch_size": 1, "dataset.disable_validation": True}
    train("lrpe_type2", "linear", scale, data, tmp_path, **more)
