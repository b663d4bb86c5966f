"""Eq. 7 of the BERT paper: four terms that sum to a head's scores."""

import pytest
import torch

from fairseq_plugins.analysis.correspondence import (
    Terms,
    position_correlation,
    split_first_layer,
)
from fairseq_plugins.analysis.identical_words import first_layer_attention
from fairseq_plugins.analysis.loaded_stacks import LoadedStack, wrap_model
from tests.models.helpers import DICTIONARY, random_tokens
from tests.models.roberta import build, enlarge


def load(encoding: str, **options: object) -> LoadedStack:
    model = enlarge(build("vanilla", encoding, **options)).double()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and normalisations that do something
            parameter.add_(0.1 * torch.randn_like(parameter))
    return wrap_model("pe_roberta", model, DICTIONARY)


PRE, POST = {"encoder_normalize_before": True}, {"encoder_normalize_before": False}
BARE = {"encoder_normalize_before": False, "layernorm_embedding": False}


@pytest.mark.parametrize("options", [PRE, POST, BARE])
@pytest.mark.parametrize("encoding", ["learned", "sinusoidal", "dpe"])
def test_four_terms_are_the_score(encoding: str, options: dict[str, object]) -> None:
    own, tokens = load(encoding, **options), random_tokens(3, 9)
    terms = split_first_layer(own, tokens)
    scores = first_layer_attention(own, tokens).scores
    torch.testing.assert_close(terms.total(), scores)
    assert terms.rest.abs().max() < 1e-9
    assert sum(terms.shares().values()) == pytest.approx(1)
    assert min(terms.position_position.std(), terms.word_position.std()) > 1e-4


def test_equation_7_as_it_is_written() -> None:
    """Without normalisation and biases: w W_Q W_K^T p^T and so on."""
    own, tokens = load("learned", **BARE), random_tokens(2, 7)
    stack, attention = own.stack, own.stack.layers[0].self_attn
    with torch.no_grad():
        attention.q_proj.bias.zero_()
        attention.k_proj.bias.zero_()
    terms = split_first_layer(own, tokens)
    words, positions = stack.embed_tokens(tokens), stack.position_embedding.weight[:7]
    for head in range(4):
        part = slice(8 * head, 8 * head + 8)
        middle = attention.q_proj.weight[part].mT @ attention.k_proj.weight[part] / 8**0.5
        expected = {
            "word_word": words @ middle @ words.mT,
            "word_position": words @ middle @ positions.mT,
            "position_word": positions @ middle @ words.mT,
            "position_position": (positions @ middle @ positions.mT).expand(2, 7, 7),
        }
        for name, value in expected.items():
            torch.testing.assert_close(getattr(terms, name)[:, head], value)
    found = position_correlation(own, positions)
    torch.testing.assert_close(found / 8**0.5, terms.position_position[0])


def test_the_position_term_is_the_same_for_all_words() -> None:
    own = load("learned", **BARE)
    terms = split_first_layer(own, random_tokens(4, 9))
    first, *others = terms.position_position
    assert all(torch.allclose(first, other) for other in others)
    assert terms.word_word.std(0).max() > 1e-3


def test_what_acts_inside_the_attention_is_the_rest() -> None:
    own, tokens = load("learned+shaw", **POST), random_tokens(2, 9)
    terms = split_first_layer(own, tokens)
    assert terms.rest.std() > 1e-3
    torch.testing.assert_close(terms.total(), first_layer_attention(own, tokens).scores)


def test_shares_are_pooled_over_heads() -> None:
    """A head with scores ten times as large counts a hundred times as much."""
    one, none = torch.tensor([[1.0, -1.0]]), torch.zeros(1, 2)
    words = torch.stack([10 * one, none]).unsqueeze(0)  # the first head's, the second has none
    positions = torch.stack([none, one]).unsqueeze(0)
    zero = torch.zeros_like(words)
    found = Terms(words, zero, zero, positions, rest=zero).shares()
    assert found["word_word"] == pytest.approx(100 / 101)
    assert found["position_position"] == pytest.approx(1 / 101)


def test_a_model_without_absolute_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="must have an absolute position encoding"):
        split_first_layer(load("none+shaw"), random_tokens(1, 5))
