"""The mean of checkpoints."""

import pytest
import torch

from fairseq_plugins.translation.average import average, last_checkpoints, main


def save(folder, epoch, updates, value, **more):
    weights = {"w": torch.full((3,), value), "version": torch.tensor([7]), **more}
    torch.save({"model": weights, "cfg": updates}, folder / f"checkpoint_{epoch}_{updates}.pt")


def test_the_last_ones_by_updates_are_averaged(tmp_path, capsys):
    for epoch, updates, value in ((1, 900, 1.0), (2, 1000, 2.0), (2, 1100, 4.0)):
        save(tmp_path, epoch, updates, value)
    torch.save({"model": {}}, tmp_path / "checkpoint_last.pt")
    assert main([str(tmp_path), "--last", "2"]) == 0
    assert "checkpoint_2_1000.pt, checkpoint_2_1100.pt" in capsys.readouterr().out
    state = torch.load(tmp_path / "average.pt", weights_only=True)
    assert state["model"]["w"].tolist() == [3.0] * 3
    assert state["model"]["version"].tolist() == [7]
    assert state["cfg"] == 1100


def test_half_precision_is_summed_in_float32(tmp_path):
    for updates in (1, 2):
        state = {"model": {"w": torch.full((1,), 60000.0, dtype=torch.float16)}}
        torch.save(state, tmp_path / f"checkpoint_1_{updates}.pt")
    mean = average(last_checkpoints(tmp_path, 2))["model"]["w"]
    assert mean.dtype == torch.float16
    assert mean.isfinite().all()


def test_too_few_and_different_models_are_refused(tmp_path, capsys):
    save(tmp_path, 1, 10, 1.0)
    with pytest.raises(ValueError, match=r"`--last` must be at most the 1 .* but is 5"):
        last_checkpoints(tmp_path, 5)
    save(tmp_path, 1, 20, 1.0, other=torch.zeros(2))
    assert main([str(tmp_path), "--last", "2"]) == 1
    assert "checkpoint_1_20.pt is of another model" in capsys.readouterr().err
    (tmp_path / "checkpoint_1_20.pt").write_bytes(b"")
    assert main([str(tmp_path), "--last", "2"]) == 1
    assert "checkpoint_1_20.pt: it is cut off or no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "average.pt").exists()
