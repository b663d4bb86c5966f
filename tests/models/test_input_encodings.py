"""What acts on a layer's input in the language model: windows, deeper layers, refusals."""

import pytest
import torch

from fairseq_plugins.encodings import IncompatibleEncodingError
from tests.models.helpers import PAD, build_lm, each_step, pad_rows, random_tokens


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kernel_size", [2, 5])
def test_a_convolution_decodes_with_what_it_looks_at(kernel_size: int, left: bool) -> None:
    """Prompts of different lengths: padding that stands between tokens is no neighbour."""
    model = build_lm("linear", "cnn", position_encoding_options=f"kernel_size={kernel_size}")
    prompts = pad_rows(random_tokens(3, 6), [6, 1, 3], left=left)
    whole = torch.cat((prompts, random_tokens(3, 6)), dim=1)
    with torch.no_grad():
        logits = each_step(model, whole, {})
        for row, tokens in zip(logits, whole, strict=True):
            kept = tokens != PAD
            expected = model(tokens[kept].unsqueeze(0))[0][0]
            torch.testing.assert_close(row[kept], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_floater_in_every_layer(attention: str) -> None:
    options = {"position_encoding_options": "every_layer=true"}
    model = build_lm(attention, "floater", **options)
    tokens = random_tokens(2, 8)
    expected = model(tokens)[0]
    with torch.no_grad():
        actual = each_step(model, tokens, {})
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    expected.square().sum().backward()
    deeper = model.decoder.deeper_embeddings["1"]
    assert deeper.field is model.decoder.position_embedding.field
    assert deeper.start.grad.abs().sum() > 0


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_floater_as_released_is_in_every_layer(attention: str) -> None:
    options = {"position_encoding_options": "floater.released=true"}
    model = build_lm(attention, "base+floater", **options)
    tokens = random_tokens(2, 8)
    expected = model(tokens)[0]
    with torch.no_grad():
        actual = each_step(model, tokens, {})
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    expected.square().sum().backward()
    first, second = (layer.self_attn.attention.encoding for layer in model.decoder.layers)
    assert second.field is first.field
    # The same vector in all keys changes no softmax; linear attention sees it.
    assert (second.start.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize("name", ["rspe", "aspe", "dpe", "2dspe", "dpe+rope"])
def test_what_needs_the_length_is_refused_when_the_model_is_built(name: str) -> None:
    with pytest.raises(IncompatibleEncodingError, match=r"a causal model cannot use .*length"):
        build_lm(encoding=name)
