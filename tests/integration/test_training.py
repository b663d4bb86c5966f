"""Training through fairseq's command in its other modes."""

import re
from pathlib import Path

import pytest
import torch

from tests.integration.helpers import fairseq_train, load_checkpoint, losses, saving_to

both = pytest.mark.parametrize(
    ("attention", "encoding"), [("vanilla", "lrpe_type2+t5"), ("linear", "lrpe_type3")]
)


@both
@pytest.mark.parametrize("options", [["fp16"], ["fp16", "memory_efficient_fp16"]])
def test_half_precision(
    options: list[str],
    attention: str,
    encoding: str,
    data: Path,
    tmp_path: Path,
    half_on_cpu: None,
) -> None:
    """``--fp16`` as on a GPU: the encoding's float32 parameters among half ones.

    There is no such test of ``--bf16``, which fairseq takes for a wish for a TPU on a CPU.
    """
    model = {"attention_type": attention, "position_encoding": encoding}
    full, half = tmp_path / "full", tmp_path / "half"
    fairseq_train(saving_to(full, data, **model))
    named = {f"common.{option}": True for option in options}
    fairseq_train({**saving_to(half, data, **model), **named})
    assert list(losses(half)) == [1, 2, 3]
    assert losses(half) == pytest.approx(losses(full), rel=0.01)
    states = [load_checkpoint(run / "checkpoint_last.pt")["model"] for run in (full, half)]
    learned = "decoder.layers.0.self_attn.attention.encoding"
    parts = [name for name in states[0] if name.startswith(learned)]
    assert parts
    for name in parts:
        torch.testing.assert_close(states[1][name], states[0][name], rtol=0.05, atol=0.01)


@both
def test_checkpointed_activations(
    attention: str, encoding: str, data: Path, tmp_path: Path
) -> None:
    """Memory for time, with the same losses, dropout included."""
    model = {"attention_type": attention, "position_encoding": encoding, "dropout": 0.1}
    plain, checkpointed = tmp_path / "plain", tmp_path / "checkpointed"
    fairseq_train(saving_to(plain, data, **model))
    fairseq_train(saving_to(checkpointed, data, **model, checkpoint_activations=True))
    assert losses(checkpointed) == pytest.approx(losses(plain), abs=1e-6)


def test_samples_that_are_too_long_are_left_out(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an encoding that could read them, too: training is of the length that it is asked for."""
    settings = saving_to(tmp_path, data, position_encoding="alibi")
    shorter = {"task.tokens_per_sample": 8, "task.sample_break_mode": "eos"}
    # Into the second epoch, which begins after a validation.
    budget = {"dataset.batch_size": 64, "optimization.max_update": 4}
    validation = {"dataset.disable_validation": False, "dataset.batch_size_valid": 8}
    skips = {"dataset.skip_invalid_size_inputs_valid_test": True}
    with caplog.at_level("WARNING"):
        fairseq_train({**settings, **shorter, **budget, **validation, **skips})
    found = re.findall(r"(\d+) samples have invalid sizes.*max_positions=(\d+),", caplog.text)
    assert {limit for _, limit in found} == {"8"}
    assert len({count for count, _ in found}) == 2  # of the training and of the validation data
