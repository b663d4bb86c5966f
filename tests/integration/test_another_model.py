"""A training that would go on from a checkpoint of another model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.common.errors import CheckpointError
from tests.hostile import naming_another_model
from tests.integration.helpers import (
    TOKENS_PER_SAMPLE,
    fairseq_eval_lm,
    fairseq_hydra_train,
    fairseq_train,
    load_checkpoint,
    losses,
    overrides,
    saving_to,
)

HAS_ROPE = "the checkpoint has `rope` under vanilla attention, this run asks for"


def more(settings: dict[str, Any], updates: int) -> dict[str, Any]:
    return {**settings, "optimization.max_update": updates}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        # With the weights' names and shapes of the first, these went on from them in silence.
        (
            {"position_encoding": "alibi"},
            f"{HAS_ROPE} `alibi`; use another --save-dir, or --init-from to start from it$",
        ),
        (
            {"position_encoding_options": "base=500"},
            "the checkpoint has `rope base=10000.0` under vanilla attention, this run asks for "
            "`rope base=500.0`; use another --save-dir, or --init-from to start from it$",
        ),
        (
            {"attention_type": "linear"},
            "the checkpoint has `base.rope` under vanilla attention, this run asks for "
            "linear attention",
        ),
        (
            {"decoder_attention_heads": 2},
            "has decoder_attention_heads=4, this run asks for decoder_attention_heads=2",
        ),
        # And these ended in errors about weights.
        ({"position_encoding": "t5"}, f"{HAS_ROPE} `t5`"),
        (
            {"decoder_layers": 3, "decoder_ffn_embed_dim": 48},
            "has decoder_layers=2, this run asks for decoder_layers=3, and the checkpoint has "
            "decoder_ffn_embed_dim=32, this run asks for decoder_ffn_embed_dim=48",
        ),
    ],
)
def test_two_models_in_one_folder(
    other: dict[str, Any], message: str, rope: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint_last.pt").write_bytes(rope.read_bytes())
    asked = saving_to(tmp_path, data, **{"position_encoding": "rope", **other})
    with pytest.raises(ValueError, match=message) as error:
        fairseq_train(more(asked, 6))
    assert f"{tmp_path / 'checkpoint_last.pt'} is of another model: " in str(error.value)


@pytest.fixture(scope="module")
def rope(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rope")
    settings = saving_to(folder, data, position_encoding="rope")
    fairseq_train({**settings, "checkpoint.save_interval_updates": 0})
    return folder / "checkpoint_last.pt"


def test_by_hydra_and_from_another_file(rope: Path, data: Path, tmp_path: Path) -> None:
    yaml = {**saving_to(tmp_path, data, position_encoding="alibi"), "checkpoint.restore_file": rope}
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ValueError, match=f"{HAS_ROPE} `alibi`; use another --restore-file, or"),
    ):
        patch.setenv("HYDRA_FULL_ERROR", "1")
        fairseq_hydra_train(tmp_path / "yaml", yaml, *overrides({"common.seed": 2}))
    start = {**yaml, "checkpoint.finetune_from_model": rope}
    del start["checkpoint.restore_file"]
    with pytest.raises(
        ValueError, match=f"{HAS_ROPE} `alibi`; use another --finetune-from-model, or"
    ) as error:
        fairseq_train(start)
    by_row = "recipes take the row's own unless checkpoint.finetune_from_model gives another"
    assert by_row in str(error.value)
    with pytest.raises(CheckpointError, match=rf"absent\.pt does not exist; {by_row}"):
        fairseq_train({**start, "checkpoint.finetune_from_model": tmp_path / "absent.pt"})
    with pytest.raises(
        CheckpointError, match=r"`restore_file` must be .*absent\.pt does not exist"
    ):
        fairseq_train({**yaml, "checkpoint.restore_file": tmp_path / "absent.pt"})


def test_other_spellings_and_other_training_go_on(rope: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint_last.pt").write_bytes(rope.read_bytes())
    words = "rotated=all  base=1e4"
    settings = saving_to(
        tmp_path, data, position_encoding="rope", position_encoding_options=words, dropout=0.1
    )
    fairseq_train(more(settings, 5))
    assert list(losses(tmp_path)) == [4, 5]


def test_a_checkpoint_from_before_an_option_has_its_default(
    rope: Path, data: Path, tmp_path: Path
) -> None:
    state = load_checkpoint(rope)
    for option in ("linear_normalizer", "feature_map", "position_encoding_options"):
        del state["cfg"]["model"][option]
    torch.save(state, tmp_path / "checkpoint_last.pt")
    fairseq_train(more(saving_to(tmp_path, data, position_encoding="rope"), 4))
    assert list(losses(tmp_path)) == [4]


def test_evaluation_does_not_look_at_the_folder_of_the_training(
    rope: Path, data: Path, tmp_path: Path
) -> None:
    """There another model may have been trained since."""
    fairseq_train(saving_to(tmp_path, data, position_encoding="rope"))
    moved = tmp_path / "moved.pt"
    (tmp_path / "checkpoint_last.pt").rename(moved)
    fairseq_train(saving_to(tmp_path, data, position_encoding="alibi"))
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE)]
    moved_loss = fairseq_eval_lm(data, moved, *sample)["loss"]
    assert moved_loss == fairseq_eval_lm(data, rope, *sample)["loss"]


def test_a_checkpoint_that_names_another_model_is_not_gone_on_from(
    rope: Path, data: Path, tmp_path: Path
) -> None:
    naming_another_model(rope, tmp_path / "checkpoint_last.pt", tmp_path / "ran")
    with pytest.raises(ValueError, match="has a fconv_lm, this run asks for a pe_transformer_lm"):
        fairseq_train(more(saving_to(tmp_path, data, position_encoding="rope"), 6))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("learned", [False, True])
def test_a_language_model_of_fairseqs_own_is_a_start(
    learned: bool, data: Path, tmp_path: Path
) -> None:
    """As the row that it is, by resuming and by fine-tuning; and of another encoding."""
    theirs, own = tmp_path / "theirs", "learned" if learned else "base"
    theirs_name = {"_name": "transformer_lm", "decoder_learned_pos": learned}
    fairseq_train(saving_to(theirs, data, **theirs_name))
    last = theirs / "checkpoint_last.pt"
    expected = fairseq_eval_lm(data, last, "--tokens-per-sample", str(TOKENS_PER_SAMPLE))["loss"]
    frozen = {"optimization.lr": [0.0], "checkpoint.finetune_from_model": last}
    fairseq_train({**saving_to(tmp_path / "same", data, position_encoding=own), **frozen})
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE)]
    same = fairseq_eval_lm(data, tmp_path / "same" / "checkpoint_last.pt", *sample)["loss"]
    assert float(same) == pytest.approx(float(expected), abs=1e-3)
    resumed = more(saving_to(theirs, data, position_encoding=own), 5)
    if learned:
        with pytest.raises(ValueError, match=r"rows for padding, .*; give --reset-optimizer"):
            fairseq_train(resumed)
        resumed |= {"checkpoint.reset_optimizer": True, "checkpoint.save_dir": tmp_path / "reset"}
        resumed["checkpoint.restore_file"] = last
    fairseq_train(resumed)
    assert list(losses(resumed["checkpoint.save_dir"]))[-2:] == [4, 5]
    with pytest.raises(ValueError, match=f"the checkpoint has `{own}` under vanilla attention"):
        fairseq_train({**saving_to(tmp_path / "rope", data, position_encoding="rope"), **frozen})
    exchanged = saving_to(tmp_path / "rope", data, position_encoding="rope", init_from=last)
    fairseq_train(exchanged)
    assert list(losses(tmp_path / "rope")) == [1, 2, 3]
