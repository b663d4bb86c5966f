"""Products of features, waves and noise by blocks of tokens are those of one formula."""

import pytest
import torch

from fairseq_plugins.encodings.wave_products import wave_products

BATCH, HEADS, DIM, WAVES, REALISATIONS = 3, 2, 4, 6, 5


@pytest.mark.parametrize("rows", [1, BATCH])
@pytest.mark.parametrize("length", [0, 1, 31, 32, 75])
def test_blocks_give_the_value_and_the_gradients_of_the_formula(length, rows):
    like = {"dtype": torch.float64, "requires_grad": True}
    # As projections leave them: tokens before heads in memory.
    x = torch.randn(BATCH, length, HEADS, DIM, **like).transpose(1, 2)
    waves = torch.randn(rows, HEADS, length, WAVES, DIM, **like)
    mixing = torch.randn(HEADS, WAVES * DIM, REALISATIONS, **like)
    expected = torch.einsum("bhtd,bhtwd,hwdr->bhtr", x, waves.expand(BATCH, -1, -1, -1, -1),
                            mixing.unflatten(1, (WAVES, DIM)))  # fmt: skip
    actual = wave_products(x, waves, mixing)
    torch.testing.assert_close(actual, expected)
    grad = torch.randn_like(expected)
    inputs = (x, waves, mixing)
    for found, right in zip(
        torch.autograd.grad(actual, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(found, right)


def test_autocast_takes_the_plain_products():
    x, waves = torch.randn(BATCH, HEADS, 7, DIM), torch.randn(1, HEADS, 7, WAVES, DIM)
    mixing = torch.randn(HEADS, WAVES * DIM, REALISATIONS)
    with torch.autocast("cpu", torch.bfloat16):
        result = wave_products(x, waves, mixing)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), wave_products(x, waves, mixing), rtol=0.1, atol=0.1)
