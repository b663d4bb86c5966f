"""What a swap checks in a model before it: positions that stay, masks, calls, and the cache."""

import pytest
import torch
from hub_models import generate, logits, make, padded, swap, words
from transformers import AlbertConfig, AlbertForMaskedLM, masking_utils

from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.integrations.huggingface import StateLayer


def positions_in_words(model) -> None:
    """Add the index of a token to its embedding, where nothing of the structure shows it."""

    def add(module, args, output):
        return output + torch.arange(output.size(1)).view(1, -1, 1)

    model.base_model.get_input_embeddings().register_forward_hook(add)


def chunks_in_masks(model) -> None:
    """Let queries see only keys of their own chunk of eight, as Llama 4 does."""
    layers = model.base_model.layers
    forward, chunked = layers[0].forward, masking_utils.chunked_causal_mask_function

    def in_chunks(*args, **options):
        if callable(options["attention_mask"]):
            options["attention_mask"] = chunked(8, torch.zeros(1, dtype=torch.long))
        return forward(*args, **options)

    layers[0].forward = in_chunks


def two_calls(model) -> None:
    """Attend twice in the second layer."""
    attention = model.base_model.layers[1].self_attn
    forward = attention.forward

    def twice(*args, **options):
        forward(*args, **options)
        return forward(*args, **options)

    attention.forward = twice


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (positions_in_words, "query differs between equal tokens in layer 0"),
        (chunks_in_masks, "has another mask within 32 positions"),
        (two_calls, "calls it 3 times"),
    ],
)
def test_a_model_that_would_be_silently_wrong_is_refused(change, match) -> None:
    model = make("llama")
    change(model)
    before, kind = logits(model, input_ids=words()), type(model)
    with pytest.raises(ValueError, match=match):
        swap(model, "alibi")
    assert type(model) is kind
    assert torch.equal(logits(model, input_ids=words()), before)


def test_a_layer_that_runs_several_times_is_refused() -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "embedding_size": 8}
    with pytest.raises(ValueError, match="`model` must"):
        swap(AlbertForMaskedLM(AlbertConfig(vocab_size=23, num_hidden_layers=2, **sizes)), "rope")


def test_projections_that_do_not_give_the_keys_are_refused() -> None:
    model = make("llama")
    model.base_model.layers[1].self_attn.k_proj.register_forward_hook(lambda m, a, out: 2 * out)
    swap(model, "rope")
    model = make("llama")
    attention = model.base_model.layers[1].self_attn
    forward = attention.forward

    def normalised(hidden_states, **options):
        return forward(hidden_states=hidden_states / 2, **options)

    attention.forward = normalised
    with pytest.raises(IncompatibleEncodingError, match="`projections=own` would work"):
        swap(model, "deberta")


@pytest.mark.parametrize("returned", [1, 2])
def test_keys_cached_elsewhere_are_refused(returned, monkeypatch) -> None:
    """As where a version of transformers takes the cache under another name."""

    def update(self, key, value, *args, **options):
        return torch.cat([key] * returned, 2), torch.cat([value] * returned, 2)

    monkeypatch.setattr(StateLayer, "update", update)
    model = swap(make("llama"), "rope")
    with pytest.raises(ValueError, match="must cache keys in the states of this model"):
        generate(model, padded(words(1), 3, "left"))
