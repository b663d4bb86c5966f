"""Encodings and attentions can be saved whole, and are the same when they come back."""

import io

import pytest
import torch
from attention_cases import (
    CAUSAL,
    DIM,
    DIRECTED,
    HEADS,
    WIDTH,
    Layer,
    count,
    one_of_each_mechanism,
)
from attention_cases import tokens as draw
from torch import nn

from fairseq_plugins.attention import FEATURE_MAPS, build_attention


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    # A module is more than tensors; this file is our own.
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


# What is saved is the encoding's, whatever the attention and direction around it.
ONE_OF_EACH_NAME = list({case[0]: case for case in DIRECTED}.values())
PICKLED = list(dict.fromkeys([*ONE_OF_EACH_NAME, *one_of_each_mechanism(DIRECTED)]))


@pytest.mark.parametrize(("name", "attention", "causal"), PICKLED)
def test_an_attention_with_its_encoding(name, attention, causal):
    """Before it ran and after, when noise was drawn and tables have grown."""
    layer, x = Layer(name, attention, causal=causal), draw(2, 140)
    if not refuses_long(layer):
        layer(x, count(140))
    x = x[:, :9]
    copy = saved_and_loaded(layer)
    outputs = []
    for module in (layer, copy):
        torch.manual_seed(4)
        outputs.append(module(x, count(9)))
    assert torch.equal(*outputs)
    assert list(copy.state_dict()) == list(layer.state_dict())


def refuses_long(layer: Layer) -> bool:
    """Whether 140 tokens are beyond a table or a span."""
    try:
        layer(draw(1, 140), count(140))
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
def test_every_feature_map(feature_map):
    module = build_attention(
        "linear", None, num_heads=HEADS, head_dim=DIM, causal=True, feature_map=feature_map
    )
    assert saved_and_loaded(module).feature_map is module.feature_map


@pytest.mark.parametrize(("name", "attention"), CAUSAL[::7])
def test_the_adapter(name, attention):
    multihead = pytest.importorskip("fairseq_plugins.attention.multihead", reason="needs fairseq")
    inner = Layer(name, attention, causal=True).attention
    module = multihead.FairseqMultiheadAttention(WIDTH, inner).double()
    copy, x = saved_and_loaded(module), draw(2, 9).transpose(0, 1)
    outputs = []
    for adapter in (module, copy):
        torch.manual_seed(4)
        outputs.append(adapter(x, x, x, need_weights=False)[0])
    assert torch.equal(*outputs)
