"""``fairseq-eval-lm`` on a checkpoint, against the definition of its loss."""

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.helpers import (
    TOKENS_PER_SAMPLE,
    fairseq_eval_lm,
    fairseq_train,
    load_checkpoint,
    load_model,
    read_tokens,
    saving_to,
)


@pytest.fixture(autouse=True)
def _one_draw() -> None:
    """In place of the suite's: stochastic encodings draw as they do for a user."""


def _bits_per_token(
    model: Any, stream: torch.Tensor, eos: int, context: int, length: int = TOKENS_PER_SAMPLE
) -> float:
    """Each token once, in blocks; before a block the ``context`` tokens that precede it."""
    inputs = torch.cat((torch.tensor([eos]), stream[:-1]))
    block, total = length - context, 0.0
    for start in range(0, len(stream), block):
        end, first = min(start + block, len(stream)), max(0, start - context)
        with torch.no_grad():
            logits, _ = model(inputs[first:end].unsqueeze(0))
        log_probs = logits[0, start - first :].double().log_softmax(-1)
        total -= log_probs.gather(1, stream[start:end, None].long()).sum().item()
    return total / len(stream) / math.log(2)


@pytest.mark.parametrize("context", [0, 6])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_loss(attention: str, context: int, data: Path, checkpoints: dict[str, Path]) -> None:
    checkpoint = checkpoints[attention]
    words = ["--context-window", str(context), "--batch-size", "3"]
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE)]
    reported = fairseq_eval_lm(data, checkpoint, *sample, *words)
    model, task = load_model(checkpoint)
    expected = _bits_per_token(model, read_tokens(data, "valid"), task.dictionary.eos(), context)
    assert reported["loss"] == pytest.approx(expected, abs=1e-5)
    assert reported["perplexity"] == pytest.approx(2**expected, abs=1e-3)


@pytest.mark.parametrize("context", [0, 40])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_a_length_beyond_training(
    attention: str, context: int, data: Path, checkpoints: dict[str, Path]
) -> None:
    """Once 0 tokens were scored there, with a perplexity of 1.00."""
    longer = 5 * TOKENS_PER_SAMPLE
    words = ["--context-window", str(context), "--tokens-per-sample", str(longer)]
    reported = fairseq_eval_lm(data, checkpoints[attention], *words)
    model, task = load_model(checkpoints[attention])
    stream, eos = read_tokens(data, "valid"), task.dictionary.eos()
    assert len(stream) > longer
    expected = _bits_per_token(model, stream, eos, context, longer)
    assert reported["loss"] == pytest.approx(expected, abs=1e-5)
    assert reported["perplexity"] == pytest.approx(2**expected, abs=1e-3)


def test_a_length_that_the_encoding_does_not_support(data: Path, tmp_path: Path) -> None:
    """fairseq dropped all samples of such a length, which is its default: a perplexity of 1.00."""
    fairseq_train(saving_to(tmp_path, data, position_encoding="learned"))
    checkpoint = tmp_path / "checkpoint_last.pt"
    asked = r"`tokens_per_sample` must be at most 16, .* but is "
    with pytest.raises(ValueError, match=asked + "1024"):
        fairseq_eval_lm(data, checkpoint)
    with pytest.raises(ValueError, match=asked + "17"):
        fairseq_eval_lm(data, checkpoint, "--tokens-per-sample", "19", "--context-window", "2")
    assert fairseq_eval_lm(data, checkpoint, "--sample-break-mode", "eos")["loss"] > 0


def test_overrides_of_no_option_are_refused(data: Path, checkpoints: dict[str, Path]) -> None:
    """fairseq ignored them, and reported the number of the model as it was trained."""
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE), "--model-overrides"]
    misspelt = "{'position_encodng': 'none'}"
    with pytest.raises(ValueError, match=r"'position_encodng'. Did you mean 'position_encoding'"):
        fairseq_eval_lm(data, checkpoints["vanilla"], *sample, misspelt)
    as_trained, other = (
        fairseq_eval_lm(data, checkpoints["vanilla"], *sample, overrides)["loss"]
        for overrides in ("{'max_tokens': 100}", "{'no_token_positional_embeddings': True}")
    )
    assert as_trained != other


def test_context_matters(data: Path, checkpoints: dict[str, Path]) -> None:
    """The two evaluations are different ones."""
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE)]
    results = {
        fairseq_eval_lm(data, checkpoints["vanilla"], *sample, "--context-window", window)["loss"]
        for window in ("0", "6")
    }
    assert len(results) == 2


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_checkpoint_is_plain(attention: str, checkpoints: dict[str, Path]) -> None:
    """It loads with weights_only=True, and pickles nothing that a later torch might refuse."""
    path = checkpoints[attention]
    state = load_checkpoint(path)
    assert state["args"] is None
    assert isinstance(state["cfg"], dict)
    assert state["cfg"]["model"]["_name"] == "pe_transformer_lm"
    assert state["cfg"]["model"]["attention_type"] == attention
    assert torch.serialization.get_unsafe_globals_in_checkpoint(path) == []


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_a_loaded_model_is_pickled(attention: str, checkpoints: dict[str, Path]) -> None:
    model, _ = load_model(checkpoints[attention])
    copy = pickle.loads(pickle.dumps(model))
    tokens = torch.randint(4, 30, (2, 15))
    with torch.no_grad():
        assert torch.equal(copy(tokens)[0], model(tokens)[0])


def test_evaluation_of_a_stochastic_encoding_is_reproducible(data: Path, tmp_path: Path) -> None:
    """fairseq-eval-lm seeds nothing itself; ``--seed`` counts, not the state that it begins in."""
    settings = saving_to(tmp_path, data, position_encoding="spe", attention_type="linear")
    fairseq_train({**settings, "checkpoint.save_interval_updates": 0})
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE), "--seed"]
    losses = []
    for before, seed in ((1, "1"), (2, "1"), (2, "7")):
        torch.manual_seed(before)
        reported = fairseq_eval_lm(data, tmp_path / "checkpoint_last.pt", *sample, seed)
        losses.append(reported["loss"])
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
