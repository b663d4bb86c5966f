"""The layer over complex features, against PyTorch's complex numbers."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import ComplexEncoderLayer
from fairseq_plugins.encodings import build_encoding


def build(**options) -> ComplexEncoderLayer:
    torch.manual_seed(1)
    return ComplexEncoderLayer(16, 2, 12, dropout=0.0, **options).double()


def by_complex_numbers(layer: ComplexEncoderLayer, x: Tensor, hidden: Tensor) -> Tensor:
    """The authors' attention and feed-forward part with z = real + i imaginary."""

    def linear(module, z: Tensor) -> Tensor:
        return z @ module.weight.mT.to(z.dtype) + module.bias * (1 + 1j)

    def norm(module, z: Tensor) -> Tensor:
        return torch.complex(module(z.real), module(z.imag))

    z = torch.complex(*x.chunk(2, -1))
    q, k, v = (
        linear(module, z).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        for module in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    logits = (q @ k.mT).abs() / math.sqrt(q.size(-1))
    weights = logits.masked_fill(hidden, -math.inf).softmax(-1)
    mixed = (weights.to(v.dtype) @ v).transpose(1, 2).flatten(-2)
    z = norm(layer.self_attn_norm, z + linear(layer.out_proj, mixed))
    inner = linear(layer.fc1, z)
    inner = torch.complex(inner.real.relu(), inner.imag.relu())
    z = norm(layer.ffn_norm, z + linear(layer.fc2, inner))
    return torch.cat((z.real, z.imag), -1)


@pytest.mark.parametrize("causal", [True, False])
def test_it_is_a_layer_of_complex_numbers(causal):
    layer = build(causal=causal)
    x = torch.randn(3, 7, 16, dtype=torch.float64)
    hidden = torch.ones(7, 7).triu(1).bool() if causal else torch.zeros(7, 7).bool()
    torch.testing.assert_close(layer(x), by_complex_numbers(layer, x, hidden), atol=1e-5, rtol=0)


def test_a_common_phase_changes_no_weight():
    layer = build()
    for module in (layer.q_proj, layer.k_proj):
        torch.nn.init.zeros_(module.bias)
    z = torch.randn(2, 5, 8, dtype=torch.complex128)
    parts = [torch.stack((one.real, one.imag), 2) for one in (z, z * torch.tensor(2.1j).exp())]
    torch.testing.assert_close(layer.weights(parts[0]), layer.weights(parts[1]))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_no_other_token(causal, side):
    layer = build(causal=causal)
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    at = slice(2, 8) if side == "left" else slice(0, 6)
    padded = torch.full((2, 8, 16), 3.0, dtype=torch.float64)
    padded[:, at] = x
    mask = torch.ones(2, 8, dtype=torch.bool)
    mask[:, at] = False
    output = layer(padded, mask)
    assert output.isfinite().all()
    torch.testing.assert_close(output[:, at], layer(x))


def test_gradients():
    layer = build(causal=True)
    x = torch.randn(1, 3, 16, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, x)


def test_gradients_at_zero_are_zero():
    layer = build()
    torch.nn.init.zeros_(layer.q_proj.bias)
    parts = torch.zeros(1, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer.weights(parts).square().sum(), parts)
    assert not slope.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    layer = build().float()
    x = 40 * torch.randn(2, 9, 16)
    with torch.no_grad():
        expected = layer(x)
        actual = layer.to(dtype)(x.to(dtype))
    assert actual.dtype == dtype
    assert (actual - expected).abs().max() <= 64 * torch.finfo(dtype).eps


def test_behind_complex_order_a_sentence_knows_its_order():
    words = torch.tensor([[4, 2, 7, 2]])
    encoding = build_encoding(
        "complex_order", num_heads=2, head_dim=8, embed_dim=16, vocab_size=9
    ).double()
    table = torch.randn(9, 16, dtype=torch.float64)
    layers = torch.nn.Sequential(build(), build())

    def mean(tokens: Tensor) -> Tensor:
        at = torch.arange(tokens.size(1)).unsqueeze(0)
        return layers(encoding.embed(table[tokens], at, tokens=tokens)).mean(1)

    assert (mean(words) - mean(words.flip(1))).abs().max() > 1e-3


@pytest.mark.parametrize(("width", "heads"), [(15, 1), (18, 2), (16, 0), (0, 2)])
def test_the_width_must_hold_two_parts_of_each_head(width, heads):
    with pytest.raises(ValueError, match="`embed_dim` must be a multiple of twice `num_heads`"):
        ComplexEncoderLayer(width, heads, 8)


@pytest.mark.parametrize("mask", [torch.zeros(2, 6), torch.zeros(6, 2).bool()])
def test_other_masks_are_errors(mask):
    with pytest.raises(ValueError, match=r"`key_padding_mask` must be bool \(2, 6\)"):
        build()(torch.randn(2, 6, 16, dtype=torch.float64), mask)
