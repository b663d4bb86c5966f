"""The BERT paper's figures on tiny models: what is in them is what the functions give."""

import json
import math

import pytest
import torch

from fairseq_plugins.analysis.bert_figures import FIGURES, make_figure
from fairseq_plugins.analysis.figure_files import rounded, write_figure
from fairseq_plugins.analysis.figure_inputs import (
    FigureInput,
    FigureSizes,
    trained,
    untrained_input,
)
from fairseq_plugins.analysis.loaded_stacks import wrap_model
from fairseq_plugins.analysis.position_vectors import closeness, dot_products
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.root import ROOT
from fairseq_plugins.encodings.frequencies import geometric, sinusoids
from fairseq_plugins.papers.bert_families import COLUMNS, TABLE_7
from tests.models.helpers import DICTIONARY, build_lm
from tests.models.roberta import build, enlarge
from tests.models.translation import build as build_translation

SIZES = FigureSizes(length=16, words=5)


def masked(encoding: str, **options: object) -> FigureInput:
    model = enlarge(build("vanilla", encoding, **options)).double()
    return trained(encoding, wrap_model("pe_roberta", model, DICTIONARY))


def causal(label: str, encoding: str = "base") -> FigureInput:
    model = build_lm(encoding=encoding).double()
    return trained(label, wrap_model("pe_transformer_lm", model, DICTIONARY))


def test_untrained_vectors_are_those_of_bert_base() -> None:
    made = make_figure(1, [], FigureSizes())
    own = made.numbers["sinusoidal, absolute"]["dot_products"]
    expected = dot_products(sinusoids(torch.arange(128), geometric(384, 768)))
    torch.testing.assert_close(own, expected, atol=1e-3, rtol=1e-5)
    assert made.numbers["sinusoidal_rpe, relative"]["dot_products"].shape == (129, 129)
    assert "| sinusoidal, absolute | 128 | 44 |" in made.paragraphs[-1]
    assert untrained_input("learned").absolute(20).shape == (20, 768)


def test_figure_1_has_learned_vectors_of_both_kinds() -> None:
    subject = masked("learned+shaw")
    made = make_figure(1, [subject, masked("none+t5")], SIZES)
    stack = subject.loaded.stack
    rows = stack.position_embedding.weight.detach()[:16]
    own = made.numbers["learned+shaw, absolute"]["dot_products"]
    torch.testing.assert_close(own, dot_products(rows))
    keys = stack.layers[0].self_attn.attention.encoding.key_table.detach()
    own = made.numbers["learned+shaw, relative"]["dot_products"]
    torch.testing.assert_close(own, dot_products(keys))
    assert len(made.numbers) == 2


def test_figure_3_says_where_psi_first_rises() -> None:
    made = make_figure(3, [], FigureSizes())
    assert made.numbers["first_rise"] == 44
    assert "first rises at m = 44" in made.paragraphs[0]
    assert not FIGURES[3].takes_inputs


def test_figure_4_compares_learned_frequencies_with_the_fixed_ones() -> None:
    subject = masked("learnable_sinusoidal")
    made = make_figure(4, [subject], SIZES)
    learned = subject.loaded.stack.position_embedding.frequencies.detach()
    torch.testing.assert_close(made.numbers["frequencies"]["learnable_sinusoidal"], learned)
    torch.testing.assert_close(made.numbers["frequencies"]["default"], geometric(16, 32))
    psi = made.numbers["psi"]["default"]
    torch.testing.assert_close(psi, closeness(geometric(16, 32), torch.arange(16)) / 16)
    own = make_figure(4, [causal("base")], SIZES).numbers["frequencies"]["base"]
    half = len(own)
    expected = 10000.0 ** (-torch.arange(half).double() / (half - 1))
    torch.testing.assert_close(own, expected, msg="fairseq's sinusoids")
    assert causal("base").absolute_kind() == "fixed sinusoids"
    with pytest.raises(ValueError, match="figure 4 needs absolute sinusoids"):
        make_figure(4, [masked("learned")], SIZES)


def test_figure_6_has_cosines_and_where_they_are_alike() -> None:
    made = make_figure(6, [masked("none+shaw")], SIZES)
    own = made.numbers["none+shaw"]
    assert own["cosines"].shape == (129, 129) and own["neighbours"].shape == (128,)
    assert (own["cosines"].diagonal() - 1).abs().max() < 1e-6
    with pytest.raises(ValueError, match="figure 6 needs relative vectors"):
        make_figure(6, [masked("learned")], SIZES)


def test_figure_9_has_the_terms_of_equation_7() -> None:
    made = make_figure(9, [masked("learned"), masked("none+shaw")], SIZES)
    assert list(made.numbers) == ["learned"]
    shares = made.numbers["learned"]["shares_of_scores"]
    assert sum(shares.values()) == pytest.approx(1) and abs(shares["rest"]) < 1e-9
    assert made.numbers["learned"]["position_position"].shape == (16, 16)
    assert "pooled over heads, queries and samples." in made.paragraphs[0]
    assert "-0.000" not in made.paragraphs[-1]
    page = (ROOT / "results" / "bert_figure9" / "mini.md").read_text()
    assert made.paragraphs[0] in page


def test_figure_9_refuses_a_model_that_hides_keys() -> None:
    with pytest.raises(OptionError, match="gpt is a causal pe_transformer_lm"):
        make_figure(9, [masked("learned"), causal("gpt", "learned")], SIZES)


def test_the_band_of_a_causal_model_is_beside_the_word_before() -> None:
    own = make_figure(11, [causal("gpt", "learned")], SIZES).numbers["gpt"]
    scores = own["scores"]
    expected = scores.diagonal().mean() - scores.diagonal(-1).mean()
    assert math.isfinite(own["band"]) and own["band"] == pytest.approx(float(expected))


def test_figures_2_and_11_have_scores_beside_weights() -> None:
    made = make_figure(11, [masked("learned+shaw")], SIZES)
    own = made.numbers["learned+shaw"]
    assert own["words"] == 5 and own["scores"].shape == own["weights"].shape == (16, 16)
    assert own["scores_by_offset"].shape == (2 * 14 - 1,)
    torch.testing.assert_close(own["weights"].sum(1), torch.ones(16).double())
    assert own["scores"].sum(1).std() > 1e-4
    # The JSON has the indicators of the page, which its rounded weights would not give.
    assert f"({own['metrics']['monotonicity_20']:.3g})" in made.agreement
    assert f"({own['asymmetry']:.3g})" in made.agreement
    with pytest.raises(ValueError, match="figure 2 needs a checkpoint"):
        make_figure(2, [untrained_input("sinusoidal")], SIZES)


def test_figure_10_has_all_three_families_and_the_papers_numbers() -> None:
    model = build_translation(position_encoding="sinusoidal").double()
    encoder = trained("mt", wrap_model("pe_transformer", model, DICTIONARY))
    made = make_figure(10, [masked("learned"), causal("gpt"), encoder], SIZES)
    kinds = [made.numbers[name]["kind"] for name in ("learned", "gpt", "mt")]
    assert kinds == ["encoder only", "decoder only", "encoder & decoder"]
    assert made.numbers["gpt"]["infinite"] == ["direction_balance"]
    lines = made.paragraphs[-1].splitlines()
    (gpt,) = [line for line in lines if line.startswith("| **gpt** |")]
    assert gpt.endswith("| inf |")
    (paper,) = [line for line in lines if line.startswith("| GPT (paper) | decoder only |")]
    assert paper.endswith("| 0.1019 | 0.0044 | 0.1114 | 0.0070 | inf |")
    assert all(len(numbers) == len(COLUMNS) for numbers in TABLE_7.values())


def test_numbers_are_rounded_and_what_is_not_finite_is_none() -> None:
    found = rounded({"a": torch.tensor([1.23456, -math.inf]), 1: [True, "x", 2]})
    assert found == {"a": [1.235, None], "1": [True, "x", 2]}
    matrix = torch.tensor([[1.23456, -math.inf], [1e-3, 1e-7]])
    assert rounded({"a": matrix}) == {"a": [[1.23, None], [0.001, 0.0]]}
    assert rounded(torch.full((2, 2), math.nan)) == [[None, None], [None, None]]


def test_files_are_the_same_each_time(tmp_path) -> None:
    subject, contents = masked("learned+shaw"), []
    for folder in ("one", "two"):
        stem = tmp_path / folder / "x.1"
        made = make_figure(11, [subject], SIZES)
        write_figure(made, stem, title="T", caption="P", command="C")
        contents.append({path.name: path.read_bytes() for path in stem.parent.iterdir()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == {"x.1.png", "x.1.svg", "x.1.json", "x.1.md"}
    assert json.loads(contents[0]["x.1.json"])["learned+shaw"]["words"] == 5


@pytest.mark.parametrize("number", [1, 2, 9, 10])
def test_all_models_of_a_figure_have_the_same_length(number: int) -> None:
    inputs = [masked("learned+shaw", max_positions=80), masked("learned", max_positions=64)]
    made = make_figure(number, inputs, FigureSizes(words=5))
    key = {1: "dot_products", 9: "position_position"}.get(number, "weights")
    found = [one[key].shape for name, one in made.numbers.items() if "relative" not in name]
    assert found == [(64, 64)] * 2
    with pytest.raises(OptionError, match="--length must be at most 64, the longest input of l"):
        make_figure(number, inputs, FigureSizes(length=70, words=5))


def test_figure_4_refuses_models_of_different_widths() -> None:
    wide = masked("learnable_sinusoidal", encoder_embed_dim=64)
    wide = FigureInput("wide", wide.inputs, wide.layer, wide.loaded)
    with pytest.raises(OptionError, match="but learnable_sinusoidal has 32, wide has 64"):
        make_figure(4, [masked("learnable_sinusoidal"), wide], SIZES)


@pytest.mark.parametrize("number", [2, 9, 10])
def test_a_model_without_weights_is_named(number: int) -> None:
    model = build("linear", "learned").double()
    linear = trained("fast", wrap_model("pe_roberta", model, DICTIONARY))
    with pytest.raises(
        OptionError, match=f"figure {number} needs softmax attention, but fast has linear"
    ):
        make_figure(number, [masked("learned"), linear], SIZES)


@pytest.mark.parametrize("encoding", ["product", "complex_order", "cnn"])
@pytest.mark.parametrize("number", [1, 9])
def test_what_multiplies_or_convolves_words_has_no_vectors(number: int, encoding: str) -> None:
    inputs = [masked(encoding), masked("learned")]
    names = [name.removesuffix(", absolute") for name in make_figure(number, inputs, SIZES).numbers]
    assert names == ["learned"]
    with pytest.raises(OptionError, match=f"figure {number} needs .*, which no input has"):
        make_figure(number, inputs[:1], SIZES)
