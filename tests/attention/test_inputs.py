"""Inputs that would be broadcast, or taken for something else, are refused by name."""

import re
from collections.abc import Callable

import pytest
import torch
from attention_cases import ATTENTIONS, DIM, HEADS, NAMES, VOCAB, compatible, count, hooks_of
from torch import Tensor

from fairseq_plugins.attention import Attention, build_attention, make_positions
from fairseq_plugins.encodings import Compose, EncodingContext, PositionEncoding, build_encoding

both = pytest.mark.parametrize("attention", ["vanilla", "linear"])
LENGTH = 5


def build(attention: str) -> Attention:
    return build_attention(attention, None, num_heads=HEADS, head_dim=DIM, causal=True)


# Others leave values as they are, of whatever size.
ON_VALUES = {"transform_value", "transform_output", "relative_values"}


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


def encoding_of(name: str) -> PositionEncoding:
    causal = not compatible("vanilla", name, causal=False)
    return build_encoding(
        name, num_heads=HEADS, head_dim=DIM, max_positions=LENGTH, causal=causal, vocab_size=VOCAB
    )


@pytest.mark.parametrize(
    ("attention", "name"),
    [
        (a, name)
        for a in ATTENTIONS
        for name in NAMES
        if any(compatible(a, name, c) for c in (0, 1))
    ],
)
def test_other_features_or_dtypes(attention, name):
    """Whatever the encoding: none computes something else, and none fails deep inside."""
    encoding = encoding_of(name)
    causal = encoding.context.causal
    module = build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    for way in ways_in(module):
        for wrong in range(3 if hooks_of(name) & ON_VALUES else 2):
            few = [heads()[..., : DIM // 2] if i == wrong else heads() for i in range(3)]
            with pytest.raises(ValueError, match=f"`{'qkv'[wrong]}` must have head_dim={DIM} fea"):
                way(*few)
        with pytest.raises(ValueError, match=r"must have one floating dtype, but .* is torch.flo"):
            way(heads(), heads().double(), heads())
        with pytest.raises(ValueError, match=r"must have one floating dtype, but .*int64"):
            way(*[heads().long()] * 3)


@both
def test_steps_of_an_attention_that_is_not_causal(attention):
    """They would be causal, unlike the pass over the whole sequence."""
    module = build_attention(attention, None, num_heads=HEADS, head_dim=DIM, causal=False)
    _, step, _ = ways_in(module)
    with pytest.raises(ValueError, match="`causal` must be True"):
        step(heads(), heads(), heads())


def test_queries_of_another_dtype_than_what_is_remembered():
    at, module = count(LENGTH), build("vanilla")
    state = module.remember(heads(), heads(), k_positions=at)
    with pytest.raises(ValueError, match=r"`q`, `v` must have one floating dtype, but `q` is"):
        module.attend(heads().double(), state, q_positions=at)


@both
def test_autocast_makes_dtypes_one(attention):
    at, module = count(LENGTH), build(attention)
    q, k, v = heads().bfloat16(), heads(), heads()
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = module(q, k, v, q_positions=at, k_positions=at)
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize("name", [n for n in NAMES if "transform_query" in hooks_of(n)])
def test_an_encoding_alone_refuses_other_features(name):
    encoding = encoding_of(name)
    for size in (DIM // 2, 2 * DIM):
        x = torch.randn(2, HEADS, LENGTH, size)
        for hook in (encoding.transform_query, encoding.transform_key):
            with pytest.raises(ValueError, match=rf"`x` must have head_dim={DIM} .* is \(2, 2"):
                hook(x, count(LENGTH))


def test_a_learned_table_says_what_makes_it_longer():
    with pytest.raises(ValueError, match="build it with a larger `max_positions`"):
        encoding_of("learned").embed(torch.randn(1, LENGTH + 1, HEADS * DIM), count(LENGTH + 1))


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


class Given(PositionEncoding):
    """An encoding whose hooks return one tensor."""

    term: Tensor

    def attn_bias(self, q_positions, k_positions):
        return self.term

    def relative_logits(self, q, k, q_positions, k_positions):
        return self.term

    def relative_values(self, weights, q_positions, k_positions):
        return self.term


@pytest.mark.parametrize("rows", [1, HEADS])
@pytest.mark.parametrize("hook", ["attn_bias", "relative_logits", "relative_values"])
def test_terms_of_another_shape(hook, rows):
    """Heads in place of rows would be broadcast to other rows, or to a larger batch."""
    context = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=HEADS * DIM)
    last = DIM if hook == "relative_values" else LENGTH
    x, at = torch.randn(rows, HEADS, LENGTH, DIM), count(LENGTH)
    given = type("Given", (PositionEncoding,), {hook: getattr(Given, hook)})(context)
    other = build_encoding("t5+shaw", num_heads=HEADS, head_dim=DIM)
    for encoding in (given, Compose([other, given])):
        module = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False)

        def attend(*shape: int, module: Attention = module) -> Tensor:
            given.term = torch.randn(shape)
            return module(x, x, x, q_positions=at, k_positions=at)[0]

        assert attend(1, 1, LENGTH, last).shape == attend(1, HEADS, LENGTH, last).shape == x.shape
        wrong = [(HEADS, LENGTH, last), (1, HEADS, last), (1, HEADS, 1, last), (3, 1, LENGTH, last)]
        if rows == 1 or hook == "attn_bias":
            wrong.append((HEADS, 1, LENGTH, last))
        first = "1" if rows == 1 or hook == "attn_bias" else f"{rows} or 1"
        needed = f"({first}, {HEADS} or 1, {LENGTH}, {last})"
        for shape in wrong:
            message = f"`{hook}` of the encoding 'Given' must be {needed}, "
            with pytest.raises(ValueError, match=re.escape(message)):
                attend(*shape)
