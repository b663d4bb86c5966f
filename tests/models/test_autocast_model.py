"""Whole models under autocast (`--amp`): losses, gradients and decoding only round."""

import pytest
import torch
from helpers import PAIRS, build_lm, random_tokens
from torch import Tensor
from torch.nn import functional as F
from translation import TARGET, batch, build, sources

ROUNDING = 16 * torch.finfo(torch.bfloat16).eps


def off(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest expected value."""
    return float((actual.detach() - expected).abs().max() / expected.abs().max())


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@pytest.mark.parametrize(("attention", "name"), PAIRS)
def test_a_language_model_trains_and_decodes(attention, name):
    model = build_lm(attention, name)
    tokens = random_tokens(2, 12)
    with torch.no_grad():
        expected = model(tokens)[0]
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens)[0]
        loss = loss_of(logits, tokens)
    loss.backward()
    assert off(logits, expected) <= ROUNDING
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    state: dict = {}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for end in range(1, 5):
            step = model(tokens[:, :end], incremental_state=state)[0]
            last = expected[:, end - 1 : end]
            assert off(step, last) <= ROUNDING


@pytest.mark.parametrize("decoder", ["linear", "vanilla"])
@pytest.mark.parametrize("name", ["base", "lrpe_type2", "per", "spe"])
def test_a_translation_model_trains(name, decoder):
    """Linear in the encoder and in cross-attention, whose sums are over the source's tokens."""
    model = build(
        position_encoding=name,
        encoder_attention_type="linear",
        decoder_attention_type=decoder,
        cross_attention_type="linear",
    )
    source = batch(sources([9, 5]), left=True)
    target = torch.randint(TARGET.nspecial, len(TARGET), (2, 7))
    arguments = source, torch.tensor([9, 5]), target
    with torch.no_grad():
        expected = model(*arguments)[0]
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(*arguments)[0]
        loss = loss_of(logits, target)
    loss.backward()
    assert off(logits, expected) <= ROUNDING
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
