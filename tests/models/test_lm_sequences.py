"""The language model over a sequence: step by step, beside padding, never looking ahead."""

from typing import Any

import pytest
import torch

from fairseq_plugins.models.pe_transformer_lm import PETransformerLM
from tests.models.helpers import PAD, PAIRS, build_lm, each_step, pad_rows, random_tokens

pytestmark = pytest.mark.usefixtures("no_grad")

every_pair = pytest.mark.parametrize(("attention", "encoding"), PAIRS)
LENGTH = 10


@pytest.fixture
def no_grad() -> Any:
    with torch.no_grad():
        yield


def test_pairs_are_complete() -> None:
    """A name that is registered later comes under these tests by itself."""
    attentions, names = zip(*PAIRS, strict=True)
    assert set(attentions) == {"vanilla", "linear"}
    assert {"base", "none", "rope", "t5", "alibi", "shaw", "learned"} <= set(names)
    assert {f"lrpe_type{i}" for i in range(1, 9)} <= set(names)


@every_pair
def test_steps_padding_and_later_tokens_change_nothing(attention: str, encoding: str) -> None:
    model = build_lm(attention, encoding).double()  # sums of type 8 are 0 but for rounding
    check_decoding(model)
    for left in (False, True):
        check_padding(model, left)
        check_decoding_with_padding(model, left)
    check_future(model)


def check_decoding(model: PETransformerLM) -> None:
    tokens, state = random_tokens(3, LENGTH), {}
    expected = model(tokens)[0]
    assert_close(each_step(model, tokens[:, :4], state), expected[:, :4])
    for order in ([2, 0, 0, 1], [3, 1]):  # a beam that grows, then one with rows finished
        rows = torch.tensor(order)
        model.decoder.reorder_incremental_state_scripting(state, rows)
        tokens, seen = tokens[rows], 4 if len(order) == 4 else 7
        tokens = torch.cat((tokens[:, :seen], random_tokens(len(order), LENGTH - seen)), 1)
        later = each_step(model, tokens[:, : seen + 3], state, start=seen)
        assert_close(later, model(tokens)[0][:, seen : seen + 3])


def check_padding(model: PETransformerLM, left: bool) -> None:
    tokens = random_tokens(3, LENGTH)
    lengths = [LENGTH, 3, 7]
    padded = pad_rows(tokens, lengths, left=left)
    logits = model(padded)[0]
    assert logits.isfinite().all()
    for row, length in enumerate(lengths):
        expected = model(tokens[row : row + 1, :length])[0][0]
        assert_close(logits[row][padded[row] != PAD], expected)


def check_decoding_with_padding(model: PETransformerLM, left: bool) -> None:
    """Prompts of different lengths, padded on either side, then decoded on."""
    tokens = random_tokens(2, 5)
    prompts = pad_rows(tokens, [5, 2], left=left)
    whole = torch.cat((prompts, random_tokens(2, 4)), dim=1)
    logits = each_step(model, whole, {})
    for row in range(2):
        kept = whole[row] != PAD
        assert_close(logits[row][kept], model(whole[row][kept].unsqueeze(0))[0][0])


def check_future(model: PETransformerLM) -> None:
    tokens = random_tokens(2, LENGTH)
    changed = tokens.clone()
    changed[:, 6:] = random_tokens(2, LENGTH - 6)
    assert_close(model(tokens)[0][:, :6], model(changed)[0][:, :6])


@every_pair
def test_position_is_seen(attention: str, encoding: str) -> None:
    """Every encoding but none tells two equal histories in another order apart."""
    model = build_lm(attention, encoding, decoder_layers=1)
    tokens = random_tokens(1, LENGTH)
    tokens[0, 2] = tokens[0, 3] + (1 if tokens[0, 3] < 30 else -1)
    swapped = tokens.clone()
    swapped[0, [2, 3]] = tokens[0, [3, 2]]
    # Of every later token: one far away may be outside an encoding's window.
    difference = (model(tokens)[0] - model(swapped)[0])[0, 4:].abs().max()
    # One causal layer without an encoding sees a set of tokens.
    assert (difference < 1e-4) == (encoding == "none")


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
