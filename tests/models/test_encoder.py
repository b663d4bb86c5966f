"""The encoder: fairseq's where nothing is new, and padding on either side changes nothing."""

from typing import Any

import pytest
import torch
from fairseq.models.transformer import Embedding, TransformerConfig, TransformerEncoderBase

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.modules.encoder import PositionalEncoder
from fairseq_plugins.modules.options import PositionEncodingConfig
from tests.models.helpers import DICTIONARY, HEADS, LAYERS, LONGEST, PAD, WIDTH, pad_rows
from tests.models.helpers import random_tokens as tokens_of

PAIRS = [
    (attention, name)
    for attention, cls in ATTENTIONS.items()
    for name, entry in ENCODINGS.items()
    if not entry.hooks - cls.supported_hooks and not entry.refusal(causal=False)
]
every_pair = pytest.mark.parametrize(("attention", "encoding"), PAIRS)


def configure(**options: Any) -> TransformerConfig:
    config = TransformerConfig()
    stack = config.encoder
    stack.layers, stack.embed_dim, stack.ffn_embed_dim = LAYERS, WIDTH, WIDTH
    stack.attention_heads = HEADS
    config.max_source_positions, config.dropout = LONGEST, 0.0
    for name, value in options.items():
        target = stack if hasattr(stack, name) else config
        assert hasattr(target, name), name
        setattr(target, name, value)
    return config


def embedding() -> torch.nn.Module:
    return Embedding(len(DICTIONARY), WIDTH, PAD)


def build(attention: str = "vanilla", encoding: str = "base", **options: Any) -> PositionalEncoder:
    """In evaluation mode, with large learned tables."""
    names = PositionEncodingConfig(attention_type=attention, position_encoding=encoding)
    model = PositionalEncoder(configure(**options), names, DICTIONARY, embedding()).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "encoding" in name or "embeddings" in name or "position_embedding" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_before": True},
        {"layernorm_embedding": True, "no_scale_embedding": True},
        {"no_token_positional_embeddings": True},
    ],
    ids=str,
)
def test_base_is_fairseq(options: dict[str, Any]) -> None:
    """Outputs and gradients, with padding; the same seed draws the same initial weights."""
    torch.manual_seed(4)
    reference = TransformerEncoderBase(configure(**options), DICTIONARY, embedding()).eval()
    torch.manual_seed(4)
    encoding = "none" if options.get("no_token_positional_embeddings") else "base"
    names = PositionEncodingConfig(attention_type="vanilla", position_encoding=encoding)
    model = PositionalEncoder(configure(**options), names, DICTIONARY, embedding()).eval()
    expected, actual = reference.state_dict(), model.state_dict()
    assert list(actual) == list(expected)
    assert all(torch.equal(actual[name], value) for name, value in expected.items())
    tokens = pad_rows(tokens_of(3, 12), [12, 5, 9], left=False)
    kept = (tokens != PAD).T
    outputs = []
    for encoder in (reference.train(), model.train()):
        result = encoder(tokens, return_all_hiddens=True)
        result["encoder_out"][0][kept].square().mean().backward()
        outputs.append(result)
    first, second = outputs
    assert first.keys() == second.keys()
    for key in ("encoder_out", "encoder_states"):
        for theirs, ours in zip(first[key], second[key], strict=True):
            torch.testing.assert_close(ours[kept], theirs[kept], rtol=1e-5, atol=1e-5)
    for key in ("encoder_padding_mask", "src_lengths", "encoder_embedding"):
        assert torch.equal(first[key][0], second[key][0])
    gradients = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[name].grad, rtol=1e-4, atol=1e-5, msg=name
        )


@every_pair
def test_padding_changes_nothing(attention: str, encoding: str) -> None:
    model = build(attention, encoding)
    for left in (False, True):
        check_padding(model, left)


def check_padding(model: PositionalEncoder, left: bool) -> None:
    tokens = tokens_of(3, 10)
    lengths = [10, 3, 7]
    padded = pad_rows(tokens, lengths, left=left)
    with torch.no_grad():
        torch.manual_seed(0)
        states = model(padded)["encoder_out"][0]
        assert states.isfinite().all()
        for row, length in enumerate(lengths):
            torch.manual_seed(0)
            expected = model(tokens[row : row + 1, :length])["encoder_out"][0][:, 0]
            actual = states[:, row][padded[row] != PAD]
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
