"""The mean of checkpoints."""

import pytest
import torch

from fairseq_plugins.translation.average import average, last_checkpoints, main
from tests.hostile import naming_another_model


def save(folder, epoch, updates, value, options=None, **more):
    weights = {"w": torch.full((3,), value), "version": torch.tensor([7]), **more}
    write(folder / f"checkpoint_{epoch}_{updates}.pt", weights, options, updates)


def write(path, weights, options=None, updates=0):
    model = {"_name": "pe_transformer", **(options or {})}
    torch.save({"model": weights, "cfg": {"model": model, "updates": updates}}, path)


def test_the_last_ones_by_updates_are_averaged(tmp_path, capsys):
    for epoch, updates, value in ((1, 900, 1.0), (2, 1000, 2.0), (2, 1100, 4.0)):
        save(tmp_path, epoch, updates, value)
    torch.save({"model": {}}, tmp_path / "checkpoint_last.pt")
    assert main([str(tmp_path), "--last", "2"]) == 0
    assert "checkpoint_2_1000.pt, checkpoint_2_1100.pt" in capsys.readouterr().out
    state = torch.load(tmp_path / "average.pt", weights_only=True)
    assert state["model"]["w"].tolist() == [3.0] * 3
    assert state["model"]["version"].tolist() == [7]
    assert state["cfg"]["updates"] == 1100


def test_half_precision_is_summed_in_float32(tmp_path):
    for updates in (1, 2):
        weights = {"w": torch.full((1,), 60000.0, dtype=torch.float16)}
        write(tmp_path / f"checkpoint_1_{updates}.pt", weights)
    mean = average(last_checkpoints(tmp_path, 2))["model"]["w"]
    assert mean.dtype == torch.float16
    assert mean.isfinite().all()


def test_too_few_and_different_models_are_refused(tmp_path, capsys):
    save(tmp_path, 1, 10, 1.0)
    with pytest.raises(ValueError, match=r"`--last` must be at most the 1 .* but is 5"):
        last_checkpoints(tmp_path, 5)
    save(tmp_path, 1, 20, 1.0, other=torch.zeros(2))
    assert main([str(tmp_path), "--last", "2"]) == 2
    assert "checkpoint_1_20.pt has other weights" in capsys.readouterr().err
    (tmp_path / "checkpoint_1_20.pt").write_bytes(b"")
    assert main([str(tmp_path), "--last", "2"]) == 2
    assert "checkpoint_1_20.pt: it is cut off or no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "average.pt").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"position_encoding": "alibi"},
            "is of another model than .*checkpoint_1_10.pt: it has `alibi`, the other `rope` under "
            "vanilla attention in the encoder",
        ),
        ({"encoder_attention_heads": 4}, "it has encoder_attention_heads=4, the other"),
        (
            {"_name": "fconv"},
            "must be a pe_transformer_lm or .* or pe_transformer, but is a fconv",
        ),
    ],
)
def test_weights_that_mean_something_else_are_refused(tmp_path, options, message):
    rope = {"position_encoding": "rope"}
    save(tmp_path, 1, 10, 1.0, rope)
    save(tmp_path, 1, 20, 1.0, {**rope, **options})
    with pytest.raises(ValueError, match=message):
        average(last_checkpoints(tmp_path, 2))
    save(tmp_path, 1, 20, 1.0, {**rope, "position_encoding_options": "base=1e4"})
    assert average(last_checkpoints(tmp_path, 2))["model"]["w"].tolist() == [1.0] * 3


def test_options_of_another_model_are_refused_and_not_evaluated(tmp_path):
    for updates in (10, 20):
        save(tmp_path, 1, updates, 1.0)
    path = tmp_path / "checkpoint_1_20.pt"
    naming_another_model(path, path, tmp_path / "ran")
    with pytest.raises(ValueError, match="but is a fconv_lm"):
        average(last_checkpoints(tmp_path, 2))
    assert not (tmp_path / "ran").exists()
