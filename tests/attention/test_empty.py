"""Sequences of length 0: no tokens, nothing to see, or a step of decoding without any.

Shapes: B batch, H heads, T queries, S keys, D head_dim, C embed_dim.
"""

import pytest
import torch
from attention_cases import BIDIRECTIONAL, CAUSAL, DIM, DIRECTED, HEADS, WIDTH, Layer, count, error
from attention_cases import tokens as draw

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import build_encoding

every_case = pytest.mark.parametrize(("name", "attention", "causal"), DIRECTED)


@every_case
def test_no_tokens_give_no_output(name, attention, causal):
    """With gradients of nothing for every parameter of the projections."""
    layer = Layer(name, attention, causal=causal)
    for padding in (None, torch.zeros(2, 0, dtype=torch.bool)):
        output = layer(draw(2, 0), count(0), padding=padding)
        assert output.shape == (2, 0, WIDTH)
        output.sum().backward()
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
            assert not projection.weight.grad.any()


@every_case
def test_a_batch_of_nothing(name, attention, causal):
    layer = Layer(name, attention, causal=causal)
    output = layer(draw(0, 3), count(3))
    assert output.shape == (0, 3, WIDTH)
    output.sum().backward()
    assert not layer.q_proj.weight.grad.any()


@pytest.mark.parametrize(("name", "attention"), BIDIRECTIONAL)
def test_one_side_without_tokens(name, attention):
    """What sees nothing gathers nothing; remembered keys are no other."""
    layer = Layer(name, attention, causal=False)
    for queries, keys in ((3, 0), (0, 3)):
        x, memory = draw(2, queries), draw(2, keys)
        output = layer(x, count(queries), memory=memory, memory_at=count(keys))
        assert output.shape == (2, queries, WIDTH)
        assert not output.any()
        state = layer.remember(layer.embed(memory, count(keys)), count(keys))
        x = layer.embed(x, count(queries))
        assert torch.equal(layer.attend(x, count(queries), state), output)


@pytest.mark.parametrize(("name", "attention"), CAUSAL)
def test_a_step_without_tokens_changes_nothing(name, attention):
    layer = Layer(name, attention, causal=True)
    check_steps(layer, draw(2, 3))


def test_a_decay_begins_at_the_first_token():
    """In a step without tokens before it, too."""
    check_steps(Layer("per", "linear", causal=True, encoding_options={"decay": True}), draw(2, 3))


def check_steps(layer, x):
    embedded = layer.embed(x, count(3))
    outputs, state = [], None
    for first, last in ((0, 0), (0, 1), (1, 1), (1, 3), (3, 3)):
        now, at = embedded[:, first:last], count(last - first, first)
        output, state = layer.step(now, at, state)
        assert output.shape == now.shape
        outputs.append(output)
    assert error(torch.cat(outputs, 1), layer(x, count(3))) <= 1e-9


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_without_an_encoding(attention):
    module = build_attention(attention, None, num_heads=HEADS, head_dim=DIM, causal=True)
    x = torch.randn(2, HEADS, 0, DIM)
    assert module(x, x, x, q_positions=count(0), k_positions=count(0))[0].shape == x.shape


def test_weights_of_nothing():
    encoding = build_encoding("shaw", num_heads=HEADS, head_dim=DIM)
    module = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    for queries, keys in ((0, 0), (3, 0), (0, 3)):
        q, k = torch.randn(2, HEADS, queries, DIM), torch.randn(2, HEADS, keys, DIM)
        at = {"q_positions": count(queries), "k_positions": count(keys)}
        output, weights = module(q, k, k, need_weights=True, **at)
        assert output.shape == q.shape
        assert weights.shape == (2, HEADS, queries, keys)
        assert not output.any()
