"""How long a sequence the models say they read, and whether they do."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.modules.lengths import UNLIMITED
from tests.models import roberta, translation
from tests.models.helpers import LONGEST, PAIRS, build_lm, random_tokens

INFERENCE = SimpleNamespace(
    generation=SimpleNamespace(print_alignment=None), common=SimpleNamespace(seed=1)
)
LONGER = 3 * LONGEST
REACH = {"randomised_learned": 8 * LONGEST}  # a table for all positions that training draws from


def extrapolates(name: str) -> bool:
    return ENCODINGS[name].facts.extrapolates


def prepared(model: Any) -> Any:
    model.prepare_for_inference_(INFERENCE)
    return model


def check_reads_what_it_says(model: Any, run: Callable[[int], torch.Tensor]) -> None:
    """Up to the limit that it reports, and an error by name beyond."""
    limit = model.max_positions()
    with torch.no_grad():
        if limit == UNLIMITED:
            assert run(LONGER).isfinite().all()
            return
        assert run(limit).isfinite().all()
        with pytest.raises(ValueError, match=f"{limit}.*but"):
            run(limit + 1)


@pytest.mark.parametrize(("attention", "encoding"), PAIRS)
def test_language_model(attention: str, encoding: str) -> None:
    model = build_lm(attention, encoding)
    assert model.max_positions() == model.max_decoder_positions() == LONGEST
    limit = prepared(model).max_positions()
    assert limit == model.max_decoder_positions()
    ends = not extrapolates(encoding) or (attention, encoding) == ("linear", "cosformer")
    assert limit == (REACH.get(encoding, LONGEST) if ends else UNLIMITED)
    check_reads_what_it_says(model, lambda length: model(random_tokens(1, length))[0])


@pytest.mark.parametrize(("attention", "encoding"), roberta.PAIRS)
def test_roberta(attention: str, encoding: str) -> None:
    model = roberta.build(attention, encoding)
    assert model.max_positions() == LONGEST
    prepared(model)
    run = lambda length: model(roberta.random_tokens(1, length), features_only=True)[0]  # noqa: E731
    check_reads_what_it_says(model, run)


def test_robertas_own_table_ends() -> None:
    """It stays on beside a relative encoding, unless it is turned off."""
    assert prepared(roberta.build(encoding="rope")).max_positions() == LONGEST
    alone = roberta.build(encoding="rope", no_token_positional_embeddings=True)
    assert prepared(alone).max_positions() == UNLIMITED


def test_a_longer_span_of_cosformer_is_read() -> None:
    model = build_lm("linear", "cosformer", position_encoding_options=f"length={2 * LONGEST}")
    assert prepared(model).max_positions() == 2 * LONGEST
    check_reads_what_it_says(model, lambda length: model(random_tokens(1, length))[0])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (UNLIMITED, UNLIMITED)),
        ({"encoder_position_encoding": "learned"}, (LONGEST, UNLIMITED)),
        ({"decoder_position_encoding": "learned"}, (UNLIMITED, LONGEST)),
        ({"cross_position_encoding": "t5"}, (UNLIMITED, UNLIMITED)),
    ],
)
def test_translation(options: dict[str, str], expected: tuple[int, int]) -> None:
    model = translation.build(**options)
    assert model.max_positions() == (LONGEST, LONGEST)
    prepared(model)
    assert model.max_positions() == expected
    assert model.max_decoder_positions() == expected[1]
    source, target = (LONGER if limit == UNLIMITED else limit for limit in expected)
    tokens = translation.batch(translation.sources([source]), left=True)
    with torch.no_grad():
        lengths = translation.lengths_of(tokens)
        logits, _ = model(tokens, lengths, translation.targets(1, target))
    assert logits.isfinite().all()


def test_what_the_attention_to_the_source_cannot_read_limits_both_sides() -> None:
    """A module that ends in the decoder's layers, as no encoding of cross-attention does yet."""
    model = translation.build(cross_position_encoding="t5")
    (encoding,) = {layer.encoder_attn.attention.encoding for layer in model.decoder.layers}
    assert isinstance(encoding, nn.Module)
    encoding.extrapolates = False
    assert prepared(model).max_positions() == (LONGEST, LONGEST)
