"""The mean of checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.evaluation.average import average, last_checkpoints, main
from fairseq_plugins.modules.identity import TRANSLATION
from tests import checkpoints
from tests.hostile import naming_another_model


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write_data(TRANSLATION, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def sound(data: Path) -> dict[str, Any]:
    return checkpoints.make(TRANSLATION, data, position_encoding="rope")


def save(state: dict[str, Any], path: Path, updates: int, value: float, **options: Any) -> None:
    """A checkpoint whose weights all have one value."""
    model = {name: torch.full_like(weight, value) for name, weight in state["model"].items()}
    cfg = {**state["cfg"], "model": {**state["cfg"]["model"], **options}}
    history = [{**state["optimizer_history"][-1], "num_updates": updates}]
    torch.save({**state, "model": model, "cfg": cfg, "optimizer_history": history}, path)


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        ({"checkpoint_1_900": 900, "checkpoint_2_1000": 1000, "checkpoint_2_1100": 1100}, [1, 2]),
        # The last updates end an epoch, with a file of its own or without one.
        (
            {"checkpoint_1_4": 4, "checkpoint_1_6": 6, "checkpoint2": 8, "checkpoint_last": 8},
            [1, 2],
        ),
        ({"checkpoint_1_4": 4, "checkpoint_1_6": 6, "checkpoint_last": 8}, [1, 2]),
        ({"checkpoint9": 9, "checkpoint10": 10, "checkpoint11": 11}, [1, 2]),
        ({"checkpoint_1_4": 4, "checkpoint_1_6": 6, "checkpoint_last": 6}, [0, 1]),
    ],
)
def test_the_last_ones_by_updates_are_averaged(files, taken, sound, tmp_path, capsys):
    for value, (name, updates) in enumerate(files.items()):
        save(sound, tmp_path / f"{name}.pt", updates, float(value))
    assert main([str(tmp_path), "--last", "2"]) == 0
    names = [f"{list(files)[i]}.pt" for i in taken]
    assert ", ".join(names) in capsys.readouterr().out
    state = torch.load(tmp_path / "average.pt", weights_only=True)
    for weight in state["model"].values():
        assert weight.unique().tolist() == [sum(taken) / 2]
    assert state["optimizer_history"][-1]["num_updates"] == max(files.values())


def test_half_precision_is_summed_in_float32(sound, tmp_path):
    for updates in (1, 2):
        half = {**sound, "model": {name: w.half() for name, w in sound["model"].items()}}
        save(half, tmp_path / f"checkpoint_1_{updates}.pt", updates, 60000.0)
    mean = next(iter(average(last_checkpoints(tmp_path, 2))["model"].values()))
    assert mean.dtype == torch.float16
    assert mean.isfinite().all()


def test_too_few_are_refused(sound, tmp_path):
    save(sound, tmp_path / "checkpoint_1_10.pt", 10, 1.0)
    with pytest.raises(ValueError, match=r"`--last` must be at most the 1 .* but is 5"):
        last_checkpoints(tmp_path, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"position_encoding": "alibi"},
            "is of another model than .*checkpoint_1_10.pt: it has `alibi`, the other `rope` under "
            "vanilla attention in the encoder",
        ),
        ({"encoder_attention_heads": 4}, "it has encoder_attention_heads=4, the other"),
    ],
)
def test_weights_that_mean_something_else_are_refused(sound, tmp_path, options, message):
    paths = [tmp_path / f"checkpoint_1_{updates}.pt" for updates in (10, 20)]
    save(sound, paths[0], 10, 1.0)
    save(sound, paths[1], 20, 1.0, **options)
    with pytest.raises(ValueError, match=message):
        average(paths)
    save(sound, paths[1], 20, 1.0, position_encoding_options="base=1e4")
    assert average(paths)["model"]["decoder.embed_tokens.weight"].unique().tolist() == [1.0]


def test_options_of_another_model_are_refused_and_not_evaluated(sound, tmp_path):
    paths = [tmp_path / f"checkpoint_1_{updates}.pt" for updates in (10, 20)]
    for path in paths:
        save(sound, path, 10, 1.0)
    naming_another_model(paths[1], paths[1], tmp_path / "ran")
    with pytest.raises(ValueError, match="but is a fconv_lm"):
        average(paths)
    assert not (tmp_path / "ran").exists()
