"""Inputs that would be broadcast, or taken for something else, are refused by name."""

from collections.abc import Callable

import pytest
import torch
from attention_cases import DIM, HEADS, count
from torch import Tensor

from fairseq_plugins.attention import Attention, build_attention, make_positions

both = pytest.mark.parametrize("attention", ["vanilla", "linear"])
LENGTH = 5


def build(attention: str) -> Attention:
    return build_attention(attention, None, num_heads=HEADS, head_dim=DIM, causal=True)


def heads(number: int = HEADS, length: int = LENGTH) -> Tensor:
    return torch.randn(2, number, length, DIM)


def ways_in(module: Attention) -> list[Callable[..., object]]:
    """Every method that takes keys and values, as a function of those, queries and a mask."""
    at = count(LENGTH)

    def whole(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> object:
        return module(q, k, v, q_positions=at, k_positions=at, key_padding_mask=mask)

    def step(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> object:
        return module.step(q, k, v, positions=at, key_padding_mask=mask)

    def fixed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> object:
        state = module.remember(k, v, k_positions=at, key_padding_mask=mask)
        return module.attend(q, state, q_positions=at)

    return [whole, step, fixed]


@both
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.bfloat16])
def test_a_padding_mask_that_is_not_bool(attention, dtype):
    """Of ones where tokens are padded, or where they count: nobody can tell."""
    mask = torch.zeros(2, LENGTH, dtype=dtype)
    for way in ways_in(build(attention)):
        with pytest.raises(ValueError, match=f"`key_padding_mask` must be bool.* but is {dtype}"):
            way(heads(), heads(), heads(), mask)
    with pytest.raises(ValueError, match=f"`padding_mask` must be bool.* but is {dtype}"):
        make_positions(mask, LENGTH)


@both
@pytest.mark.parametrize("shape", [(2, LENGTH - 1), (LENGTH,), (2, 1, LENGTH)])
def test_a_padding_mask_of_another_shape(attention, shape):
    mask = torch.zeros(shape, dtype=torch.bool)
    for way in ways_in(build(attention)):
        with pytest.raises(ValueError, match=r"`key_padding_mask` must be \(B, 5\), but is"):
            way(heads(), heads(), heads(), mask)


@both
@pytest.mark.parametrize("number", [1, 2 * HEADS])
@pytest.mark.parametrize("wrong", ["q", "k", "v", "kv", "qkv"])
def test_other_numbers_of_heads(attention, number, wrong):
    inputs = [heads(number if name in wrong else HEADS) for name in "qkv"]
    for way in ways_in(build(attention)):
        message = f"must have num_heads={HEADS} heads, .*`[{wrong}]` has {number}"
        with pytest.raises(ValueError, match=message):
            way(*inputs)


@both
def test_keys_and_values_of_other_lengths(attention):
    for way in ways_in(build(attention)):
        with pytest.raises(ValueError, match="one length, but have 5 and 4"):
            way(heads(), heads(), heads(length=LENGTH - 1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_an_attention_mask_of_integers(dtype):
    mask, at = torch.ones(LENGTH, LENGTH, dtype=dtype), count(LENGTH)
    with pytest.raises(ValueError, match=f"`attn_mask` must be bool.* but is {dtype}"):
        build("vanilla")(heads(), heads(), heads(), q_positions=at, k_positions=at, attn_mask=mask)
