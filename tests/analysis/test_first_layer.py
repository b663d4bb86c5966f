"""Attention to sentences that repeat one word."""

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.analysis.identical_words import (
    FirstLayerAttention,
    draw_words,
    first_layer_attention,
    probe,
    repeat_words,
)
from fairseq_plugins.analysis.indicators import infinite, measure, translation_invariance
from fairseq_plugins.analysis.loaded_stacks import LoadedStack, wrap_model
from fairseq_plugins.models.pe_roberta import PERoberta
from tests.models.helpers import DICTIONARY, build_lm
from tests.models.roberta import build, enlarge
from tests.models.translation import build as build_translation

TOKENS = repeat_words(DICTIONARY, torch.arange(4, 12), 20)


def weights_of(encoding: str, **options: object) -> torch.Tensor:
    return look(larger(encoding, **options)).weights.mean(1)


def look(model: PERoberta, tokens: torch.Tensor = TOKENS) -> FirstLayerAttention:
    return first_layer_attention(wrap_model("pe_roberta", model, DICTIONARY), tokens)


def larger(encoding: str, **options: object) -> PERoberta:
    """Large enough weights for an attention that is not the same everywhere, in float64."""
    model = enlarge(build("vanilla", encoding, **options))
    with torch.no_grad():
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.q_proj.weight.mul_(20)
            layer.self_attn.k_proj.weight.mul_(20)
    return model.double()


def test_one_word_between_the_special_tokens() -> None:
    assert TOKENS.shape == (8, 20)
    assert set(TOKENS[:, 0].tolist()) == {DICTIONARY.bos()}
    assert set(TOKENS[:, -1].tolist()) == {DICTIONARY.eos()}
    for word, sentence in zip(range(4, 12), TOKENS[:, 1:-1], strict=True):
        assert set(sentence.tolist()) == {word}


def test_weights_are_equation_8_after_the_softmax() -> None:
    """softmax((w + p_i) W_Q ((w + p_j) W_K)^T / sqrt(D)), mean over heads."""
    model = larger("learned", layernorm_embedding=False)
    stack = model.encoder.sentence_encoder
    attention = stack.layers[0].self_attn
    x = stack.embed_tokens(TOKENS) + stack.position_embedding.weight[: TOKENS.size(1)]
    if stack.layers[0].normalize_before:
        x = stack.layers[0].self_attn_layer_norm(x)
    q, k = (
        projection(x).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        for projection in (attention.q_proj, attention.k_proj)
    )
    expected = (q @ k.mT / attention.head_dim**0.5).softmax(-1).mean(1)
    torch.testing.assert_close(look(model).weights.mean(1), expected)
    assert not attention._forward_hooks and not attention._forward_pre_hooks


def test_without_positions_all_words_weigh_the_same() -> None:
    inner = weights_of("none")[:, 1:-1, 1:-1]
    assert (inner - inner[:, :1, :1]).abs().max() < 1e-12
    assert measure(weights_of("none").mean(0))["translation_invariance_words"] is None


@pytest.mark.parametrize("encoding", ["none+shaw", "none+sinusoidal_rpe", "alibi", "none+t5"])
def test_relative_encodings_shift_with_the_query(encoding: str) -> None:
    """Their logits depend on the offset alone; their weights also on how many keys there are."""
    words = weights_of(encoding, encoder_attention_heads=1)[0, 1:-1, 1:-1]
    logits = (words / words.diagonal().unsqueeze(1)).log()
    assert logits.var() > 1e-4
    assert translation_invariance(logits) < 1e-9
    absolute = weights_of("learned", encoder_attention_heads=1)[0, 1:-1, 1:-1]
    assert translation_invariance(absolute.log()) > 0.1


def test_linear_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="`attention_type` must be 'vanilla', but is 'linear'"):
        look(build("linear", "lrpe_type2"))


@pytest.mark.parametrize("encoding", ["learned+shaw", "lrpe_type2", "none+t5", "xl", "deberta"])
def test_scores_are_what_the_softmax_is_of(encoding: str) -> None:
    """All that positions add is in them, also where they act inside the attention."""
    model = larger(encoding)
    seen = look(model)
    assert seen.scores.shape == seen.weights.shape == (8, 4, 20, 20)
    assert seen.scores.std() > 0.1
    torch.testing.assert_close(seen.scores.softmax(-1), seen.weights)
    q = seen.attention.q_proj(seen.inputs)
    assert q.shape == (8, 20, 32)
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    assert not attention._forward_hooks and not attention._forward_pre_hooks


def causal(encoding: str = "learned") -> LoadedStack:
    model = build_lm("vanilla", encoding, dropout=0.0)
    return wrap_model("pe_transformer_lm", model.double(), DICTIONARY)


def translating(encoding: str = "sinusoidal") -> LoadedStack:
    model = build_translation(position_encoding=encoding).double()
    return wrap_model("pe_transformer", model, DICTIONARY)


def test_a_causal_model_hides_what_succeeds_and_its_balance_is_infinite() -> None:
    found = probe(causal(), words=6, length=24)
    assert found.loaded.is_causal and (found.loaded.num_bos, found.loaded.num_eos) == (0, 0)
    assert (found.weights.triu(1) == 0).all() and (found.scores.triu(1).diagonal(1) < -1e9).all()
    torch.testing.assert_close(found.weights.sum(1), torch.ones(24, dtype=torch.float64))
    assert infinite(found.weights) == ["direction_balance"]
    metrics = measure(found.weights, 0, 0)
    assert metrics["direction_balance"] is None
    assert metrics["translation_invariance"] == metrics["translation_invariance_words"] > 0


def test_a_translation_model_is_probed_by_its_encoder() -> None:
    loaded = translating()
    found = probe(loaded, words=5, length=16)
    assert loaded.stack is loaded.model.encoder
    assert (loaded.num_bos, loaded.num_eos) == (0, 1)
    assert not infinite(found.weights)
    metrics = measure(found.weights, loaded.num_bos, loaded.num_eos)
    assert metrics["translation_invariance_words"] == translation_invariance(
        found.weights[:-1, :-1]
    )


def test_words_between_the_tokens_that_a_model_was_trained_with() -> None:
    words = torch.tensor([5, 9])
    assert repeat_words(DICTIONARY, words, 4, 0, 0).tolist() == [[5] * 4, [9] * 4]
    assert repeat_words(DICTIONARY, words, 4, 0, 1).tolist() == [[5, 5, 5, 2], [9, 9, 9, 2]]
    assert repeat_words(DICTIONARY, words, 4, 1, 0).tolist() == [[0, 5, 5, 5], [0, 9, 9, 9]]


@pytest.mark.parametrize("make", [causal, translating])
def test_relative_encodings_shift_in_every_family(make) -> None:
    """Before the softmax the scores of one word depend on the offset alone."""
    for encoding, is_relative in (("alibi", True), ("learned", False)):
        loaded = make(f"none+{encoding}" if is_relative else encoding)
        scores = probe(loaded, words=4, length=20).scores
        words = scores[: 20 - loaded.num_eos, : 20 - loaded.num_eos]
        spread = max(float(words.diagonal(-k).std()) for k in range(5))
        assert (spread < 1e-9) == is_relative


def test_words_are_drawn_by_the_seed_from_those_of_the_text() -> None:
    dictionary = Dictionary()
    for i in range(40):
        dictionary.add_symbol(f"w{i}", n=i % 2)
    dictionary.add_symbol("<mask>")
    drawn = draw_words(dictionary, 15, seed=3)
    assert len(drawn) == len(set(drawn.tolist())) == 15
    assert drawn.tolist() == draw_words(dictionary, 15, seed=3).tolist()
    assert drawn.tolist() != draw_words(dictionary, 15, seed=4).tolist()
    every = draw_words(dictionary, 300, seed=1)
    assert sorted(every.tolist()) == [i for i in range(4, 44) if (i - 4) % 2]
    with pytest.raises(ValueError, match="`words` must be at least 1, but is 0"):
        draw_words(dictionary, 0, seed=1)
    with pytest.raises(ValueError, match="counts of 0 only"):
        draw_words(Dictionary(), 5, seed=1)
