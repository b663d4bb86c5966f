"""Maps and measures of single heads, against closed forms."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_plugins.analysis.attention_heads import (
    GAP,
    head_weights,
    heads_figure,
    measure_heads,
)
from fairseq_plugins.analysis.identical_words import first_layer_attention
from fairseq_plugins.analysis.loaded_stacks import LoadedStack, wrap_model
from fairseq_plugins.analysis.samples import Sample, read_samples
from fairseq_plugins.encodings.bias import alibi_slopes
from tests.models.helpers import DICTIONARY, HEADS, LAYERS, build_lm
from tests.models.roberta import build
from tests.models.translation import build as build_translation

NOTHING = torch.empty(0, dtype=torch.long)
TEXT = Sample(torch.arange(4, 16), NOTHING)
PAIR = Sample(torch.tensor([4, 5, 6, 7, 2]), torch.tensor([8, 9, 10, 2]))


def causal(encoding: str = "none+alibi", attention: str = "vanilla", **options) -> LoadedStack:
    model = build_lm(attention, encoding, dropout=0.0, **options).double()
    return wrap_model("pe_transformer_lm", model, DICTIONARY)


def masked(encoding: str) -> LoadedStack:
    return wrap_model("pe_roberta", build("vanilla", encoding).double(), DICTIONARY)


def translating(**options) -> LoadedStack:
    model = build_translation(**options).double()
    loaded = wrap_model("pe_transformer", model, DICTIONARY)
    return replace(loaded, languages=("en", "de"))


def test_measures_of_known_weights() -> None:
    length = 9
    same, alike = torch.eye(length), torch.full((length, length), 1 / length)
    before = torch.eye(length).roll(-1, 1).triu(1).mT
    before[0, 0] = 1
    found = measure_heads(torch.stack([same, alike, before]).double())
    expected = [0, (length**2 - 1) / (3 * length), (length - 1) / length]
    assert found["distance"].tolist() == pytest.approx(expected)
    assert found["entropy"].tolist() == pytest.approx([0, math.log2(length), 0])
    assert found["first"].tolist() == pytest.approx([1 / length, 1 / length, 2 / length])


def test_heads_of_alibi_weigh_by_their_slopes() -> None:
    """Without content the weights are those of the bias alone, in every layer."""
    loaded = causal()
    with torch.no_grad():
        for layer in loaded.stack.layers:
            layer.self_attn.q_proj.weight.zero_()
            layer.self_attn.q_proj.bias.zero_()
    found = head_weights(loaded, TEXT)
    at = torch.arange(12.0, dtype=torch.float64)
    distance = (at.unsqueeze(1) - at).masked_fill(torch.ones(12, 12).triu(1).bool(), math.inf)
    expected = (-alibi_slopes(HEADS).double().view(-1, 1, 1) * distance).softmax(-1)
    assert found.shape == (LAYERS, HEADS, 12, 12)
    for layer in found:
        torch.testing.assert_close(layer, expected, atol=1e-6, rtol=1e-5)
    assert (measure_heads(found)["distance"].diff(dim=1) > 0).all(), "slopes fall"


@pytest.mark.parametrize("encoding", ["learned", "none+t5", "xl", "deberta_emd"])
def test_the_first_layer_is_that_of_identical_words(encoding: str) -> None:
    loaded = masked(encoding)
    found = head_weights(loaded, TEXT)
    first = first_layer_attention(loaded, TEXT.tokens.unsqueeze(0)).weights[0]
    torch.testing.assert_close(found[0], first)
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]).double())
    for layer in loaded.stack.layers:
        assert not layer.self_attn._forward_hooks and not layer.self_attn._forward_pre_hooks


def test_a_translation_model_has_three_attentions() -> None:
    loaded = translating(position_encoding="rope")
    shapes = {"encoder": (5, 5), "decoder": (4, 4), "cross": (4, 5)}
    found = {site: head_weights(loaded, PAIR, site) for site in shapes}
    for site, shape in shapes.items():
        assert found[site].shape == (LAYERS, HEADS, *shape)
        torch.testing.assert_close(
            found[site].sum(-1), torch.ones(LAYERS, HEADS, shape[0]).double()
        )
    assert (found["decoder"].triu(1) == 0).all() and not (found["encoder"].triu(1) == 0).all()
    # fairseq's own alignment is the mean over the last layer's heads.
    tokens, read = PAIR.tokens.unsqueeze(0), torch.tensor([[2, 8, 9, 10]])
    _, extra = loaded.model(tokens, torch.tensor([5]), read)
    torch.testing.assert_close(found["cross"][-1].mean(0), extra["attn"][0][0].double())
    figure = heads_figure(loaded, [PAIR], "cross", heads=[2])
    assert figure.numbers["queries"] == ["x4", "x5", "x6", "</s>"]
    assert figure.numbers["keys"] == ["w0", "w1", "w2", "w3", "</s>"]
    assert heads_figure(loaded, [PAIR], "decoder").numbers["keys"][0] == "</s>"


def test_chosen_heads_and_means_over_samples() -> None:
    loaded = causal("rope")
    other = Sample(TEXT.tokens.flip(0)[:7], NOTHING)
    numbers = heads_figure(loaded, [TEXT, other], layers=[2], heads=[3, 1]).numbers
    assert list(numbers["heads"]) == ["layer 2, head 3", "layer 2, head 1"]
    weights = [head_weights(loaded, one)[1, 2] for one in (TEXT, other)]
    found = numbers["heads"]["layer 2, head 3"]
    torch.testing.assert_close(found["weights"], weights[0])
    means = [float(measure_heads(one)["entropy"]) for one in weights]
    assert found["entropy"] == pytest.approx(sum(means) / 2)
    with pytest.raises(ValueError, match=f"`heads` must be at most {HEADS}, but are 1, 9"):
        heads_figure(loaded, [TEXT], heads=[1, 9])
    with pytest.raises(ValueError, match="`site` must be among decoder, but is cross"):
        head_weights(loaded, TEXT, "cross")
    with pytest.raises(ValueError, match="'vanilla', but is 'linear'"):
        head_weights(causal("none+rope", "linear"), TEXT)


def write(stem: Path, *sentences: list[int]) -> None:
    builder = MMapIndexedDatasetBuilder(f"{stem}.bin", dtype=np.uint16)
    for sentence in sentences:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(f"{stem}.idx")


def test_a_text_is_cut_into_samples(tmp_path: Path) -> None:
    write(tmp_path / "test", [4, 5, 2], [6, 7, 8, 2], [9, 2])
    found = read_samples(causal(), tmp_path, "test", length=4, count=9)
    assert [one.tokens.tolist() for one in found] == [[4, 5, 2, 6], [7, 8, 2, 9]]
    found = read_samples(masked("learned"), tmp_path, "test", length=4, count=2)
    assert [one.tokens.tolist() for one in found] == [[0, 4, 5, 2], [0, 6, 7, 8]]
    with pytest.raises(ValueError, match="test must have 10 tokens, but has none"):
        read_samples(causal(), tmp_path, "test", length=10, count=1)
    with pytest.raises(ValueError, match="`length` must be at least 2 and at most the model's 64"):
        read_samples(masked("learned"), tmp_path, "test", length=1, count=1)
    with pytest.raises(ValueError, match=r"valid\.idx is missing"):
        read_samples(causal(), tmp_path, "valid", length=4, count=1)


@pytest.mark.parametrize("name", ["test.en-de", "test.de-en"])
def test_pairs_of_sentences_are_short_enough_and_whole(tmp_path: Path, name: str) -> None:
    write(tmp_path / f"{name}.en", [4, 2], [5, 5, 2], [6, 2])
    write(tmp_path / f"{name}.de", [7, 8, 2], [9, 9, 9, 2], [4, 2])
    found = read_samples(translating(), tmp_path, "test", length=3, count=9)
    pairs = [(one.tokens.tolist(), one.target.tolist()) for one in found]
    assert pairs == [([4, 2], [7, 8, 2]), ([6, 2], [4, 2])]
    with pytest.raises(ValueError, match="must have pairs of at most 1 tokens"):
        read_samples(translating(), tmp_path, "test", length=1, count=9)


def test_many_maps_are_one_image_and_few_have_tokens() -> None:
    figure = heads_figure(causal("rope"), [TEXT])
    axis, _ = figure.picture.axes
    image = axis.images[0].get_array()
    assert image.shape == (LAYERS * (12 + GAP), HEADS * (12 + GAP))
    own = figure.numbers["heads"]["layer 2, head 3"]["weights"].sqrt().numpy()
    np.testing.assert_array_equal(image[14:26, 28:40], own)
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "2", "3", "4"]
    few = heads_figure(causal("rope"), [TEXT], layers=[2], heads=[1, 4]).picture.axes
    assert [axis.get_title() for axis in few[:2]] == ["layer 2, head 1", "layer 2, head 4"]
    assert few[0].get_xticklabels()[0].get_text() == "w0"
