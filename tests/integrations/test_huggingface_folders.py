"""A swapped model is kept: in folders, copies and half precision; and what is refused by name."""

import copy
import json
import pickle
import subprocess
import sys

import pytest
import torch
from hub_models import FAMILIES, fits, generate, logits, make, padded, swap, words
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    LlamaForSequenceClassification,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)

from fairseq_plugins.encodings import IncompatibleEncodingError, PositionEncoding
from fairseq_plugins.integrations.huggingface import own_rotation
from fairseq_plugins.integrations.huggingface.install import installed_modules

# One of each way in which a tensor can be kept: drawn, learned, shared, derived from a drawn one.
KEPT = (
    "rope",
    "lrpe_type3",
    "lrpe_type8",
    "per",
    "t5",
    "deberta_emd",
    "xl",
    "fire",
    "spe",
    "learned",
    "cnn",
    "floater",
    "complex_order",
    "t5+lrpe_type2",
    "deberta+learned",
)


@pytest.fixture(scope="module", params=["vanilla", "linear"])
def attention(request) -> str:
    return request.param


def auto_of(family: str):
    return AutoModelForMaskedLM if family in ("bert", "roberta") else AutoModelForCausalLM


@pytest.mark.parametrize("name", KEPT)
def test_a_folder_keeps_every_kind_of_encoding(name, attention, tmp_path) -> None:
    if not all(fits(part, attention, causal=True) for part in name.split("+")):
        pytest.skip("refused, as another test says")
    model = swap(make("llama"), name, attention)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is type(model)
    given = padded(words(1), 3, "left")
    assert torch.equal(logits(again, **given), logits(model, **given))
    assert torch.equal(generate(again, given), generate(model, given))
    # What layers shared they share again.
    counts = [sum(1 for _ in installed_modules(m).parameters()) for m in (model, again)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "options",
    [
        {"normalizer": "clamped", "epsilon": 0.01},
        {"normalizer": "output_norm"},
        {"normalizer": "output_norm", "output_norm": "rms_norm"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_folder_keeps_denominators_and_norms_of_the_output(options, tmp_path) -> None:
    model = swap(make("llama"), "lrpe_type2", "linear", attention_options=options)
    norms = [p for n, p in installed_modules(model).named_parameters() if "output_norm" in n]
    assert bool(norms) is (options["normalizer"] == "output_norm")
    with torch.no_grad():
        for norm in norms:
            norm.add_(torch.randn_like(norm))
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    given = padded(words(1), 3, "left")
    assert torch.equal(logits(again, **given), logits(model, **given))
    assert torch.equal(generate(again, given), generate(again, given, use_cache=False))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_each_family(family: str, attention: str, tmp_path) -> None:
    model = swap(make(family), "lrpe_type2", attention)
    model.save_pretrained(tmp_path)
    again = auto_of(family).from_pretrained(tmp_path)
    given = {"input_ids": words()}
    assert torch.equal(logits(again, **given), logits(model, **given))
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["model_type"] == f"positional_{family}"
    assert said["position_encoding"]["name"] == "lrpe_type2"


@pytest.mark.parametrize("auto", [AutoModelForPreTraining, AutoModelForNextSentencePrediction])
def test_a_folder_of_a_bert_with_its_heads_of_pretraining(auto, tmp_path) -> None:
    model = swap(auto.from_config(make("bert").config).eval(), "lrpe_type2")
    model.save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(words())[0], model(words())[0])


def test_another_head_and_the_base_alone_find_the_encoding(tmp_path) -> None:
    model = swap(make("llama"), "lrpe_type3")
    model.save_pretrained(tmp_path)
    base = AutoModel.from_pretrained(tmp_path)
    with torch.no_grad():
        expected = model.model(input_ids=words()).last_hidden_state
        torch.testing.assert_close(base(input_ids=words()).last_hidden_state, expected)
    head = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert isinstance(head, LlamaForSequenceClassification)
    own = installed_modules(model).state_dict()
    for name, tensor in installed_modules(head).state_dict().items():
        assert torch.equal(tensor, own[name]), name


@pytest.mark.parametrize(("name", "attention"), [("lrpe_type2", "linear"), ("deberta", "vanilla")])
def test_loading_in_half_precision_is_casting_after_loading(name, attention, tmp_path) -> None:
    swap(make("llama"), name, attention).save_pretrained(tmp_path)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    cast = AutoModelForCausalLM.from_pretrained(tmp_path).to(torch.bfloat16)
    swapped = swap(make("llama").to(torch.bfloat16), name, attention)
    for model in (half, swapped):
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    for key, tensor in cast.state_dict().items():
        assert torch.equal(half.state_dict()[key], tensor), key
    assert torch.equal(logits(half, input_ids=words()), logits(cast, input_ids=words()))


def test_copies_and_pickles_are_models_of_their_own() -> None:
    model = swap(make("gpt2"), "deberta")
    given = {"input_ids": words()}
    expected = logits(model, **given)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.0)
        assert torch.equal(logits(twin, **given), expected)
        mine = {id(p) for p in model.parameters()}
        assert not mine & {id(p) for p in twin.parameters()}


_IN_ANOTHER_PROCESS = """
import pickle, sys, torch
model = pickle.load(open(sys.argv[1], "rb"))
output = model(torch.arange(5).unsqueeze(0), output_hidden_states=True, output_attentions=True)
print(len(output.hidden_states), len(output.attentions))
"""


@pytest.mark.parametrize("part", ["head", "base"])
def test_a_pickle_in_another_process_returns_hidden_states(part: str, tmp_path) -> None:
    model = make("bert")
    model = swap(model if part == "head" else model.base_model, "rope")
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(model))
    command = [sys.executable, "-c", _IN_ANOTHER_PROCESS, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split()[-2:] == ["3", "2"]


def change(folder, **settings: object) -> None:
    path = folder / "config.json"
    said = json.loads(path.read_text())
    said["position_encoding"].update(settings)
    path.write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"name": "__import__('os').system('true')"}, "one of the encodings' names"),
        ({"name": "my_own"}, "Import an encoding of your own first"),
        ({"options": {"p": ["householder"]}}, "`p` of `position_encoding` must be a word"),
        ({"options": {"p": "__import__('os')"}}, "option `p` must be one of"),
        ({"attention": "quadratic"}, "`attention` .* must be one of"),
        ({"max_positions": "64"}, "`max_positions` of `position_encoding` must be an integer"),
        ({"code": "print(1)"}, "has 'code'"),
    ],
)
def test_a_configuration_is_only_read(settings, match, tmp_path) -> None:
    swap(make("llama"), "lrpe_type2").save_pretrained(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_file_without_the_encodings_weights_is_refused(tmp_path) -> None:
    swap(make("llama"), "lrpe_type3").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    some = next(name for name in weights if "position_encoding" in name)
    del weights[some]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 weights of the position encoding"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_vocabulary_with_a_row_of_the_encoding_for_each_word_is_not_resized() -> None:
    """Its folder could not be loaded."""
    model = swap(make("llama"), "complex_order")
    size = model.config.vocab_size
    for given in ({}, {"mean_resizing": False}):
        assert model.resize_token_embeddings(size, **given) is model.get_input_embeddings()
    for options in ({"new_num_tokens": size + 7}, {"pad_to_multiple_of": 8}):
        with pytest.raises(ValueError, match="`new_num_tokens` must be 23, since complex_order"):
            model.resize_token_embeddings(**options)
    swap(model, "rope").resize_token_embeddings(size + 7)


def test_a_cache_gives_tokens_back_under_softmax_alone(attention: str) -> None:
    model, tokens = swap(make("llama"), "rope", attention), words(1)
    with torch.no_grad():
        cache = model(input_ids=tokens[:, :6], use_cache=True).past_key_values
        if attention == "linear":
            with pytest.raises(ValueError, match="`tokens_to_remove` must be 0"):
                cache.crop(-2)
            return
        cache.crop(-2)
        after = model(input_ids=tokens[:, 4:], past_key_values=cache).logits
    torch.testing.assert_close(after, logits(model, input_ids=tokens)[:, 4:], atol=2e-5, rtol=0)


def test_a_cached_prompt_is_shared_by_rows(attention: str) -> None:
    """As transformers does for several continuations of one prompt."""
    model, prompt = swap(make("llama"), "lrpe_type2", attention), words(1)[:, :5]
    tokens = torch.cat([prompt.expand(2, -1), words()[:, 5:]], 1)
    with torch.no_grad():
        cache = model(input_ids=prompt, use_cache=True).past_key_values
        cache.batch_repeat_interleave(3)
        cache.batch_select_indices(torch.tensor([2, 0]))
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([True, False, False, True]))
        after = model(input_ids=tokens[:, 5:], past_key_values=cache).logits
    torch.testing.assert_close(after, logits(model, input_ids=tokens)[:, 5:], atol=2e-5, rtol=0)


def test_what_nobody_would_honour_is_refused_by_name() -> None:
    model, tokens = swap(make("llama"), "rope", "linear"), words()
    seen = {"input_ids": tokens}
    with pytest.raises(ValueError, match="`past_key_values` must be a DynamicCache"):
        model(**seen, past_key_values=StaticCache(model.config, max_cache_len=20))
    filled = make("llama")(**seen, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="has 9 tokens that were cached without"):
        model(**seen, past_key_values=filled)
    with pytest.raises(ValueError, match=r"`attention_mask` must be \(B, 9\)"):
        model(**seen, attention_mask=torch.zeros(2, 1, 9, 9))
    with pytest.raises(ValueError, match=r"`attention_mask` must be \(B, 9\)"):
        model(**seen, attention_mask=torch.ones(2, 7))
    with pytest.raises(ValueError, match="`is_causal` must be True"):
        model(**seen, is_causal=False)
    with pytest.raises(ValueError, match="`need_weights` must be False for linear"):
        model(**seen, output_attentions=True)
    again = torch.cat([torch.arange(4), torch.arange(5)]).expand(2, -1)
    with pytest.raises(ValueError, match="must have one row"):
        model(**seen, position_ids=again, use_cache=False)
    with pytest.raises(ValueError, match="either `input_ids` or `inputs_embeds`"):
        model(use_cache=False)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_an_attention_of_transformers_would_have_no_encoding(implementation: str) -> None:
    model = swap(make("llama"), "alibi")
    model.set_attn_implementation(implementation)
    with pytest.raises(ValueError, match=f"must be 'fairseq_plugins'.*is '{implementation}'"):
        model(input_ids=words())


def test_what_cannot_be_swapped_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="`model` must have layers with one self-attention each"):
        sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
        swap(T5ForConditionalGeneration(T5Config(vocab_size=9, **sizes)), "rope")
    with pytest.raises(ValueError, match=r"`model` must be a model of transformers.* is a Linear"):
        swap(nn.Linear(2, 2), "rope")
    with pytest.raises(ValueError, match=r"`max_positions` must be .*but is 0 instead"):
        swap(make("llama"), "rope", max_positions=0)
    with pytest.raises(ValueError, match="`scale_attn_by_inverse_layer_idx` of the model"):
        swap(make("gpt2", scale_attn_by_inverse_layer_idx=True), "rope")
    with pytest.raises(ValueError, match="`add_cross_attention` of the model must be False"):
        swap(make("gpt2", add_cross_attention=True), "rope")
    with pytest.raises(ValueError, match="`keep_absolute` must be False"):
        swap(make("llama"), "rope", keep_absolute=True)
    with pytest.raises(ValueError, match=r"`max_positions` must be at most the \d+ .* but is 999"):
        swap(make("gpt2"), "rope", keep_absolute=True, max_positions=999)
    with pytest.raises(IncompatibleEncodingError, match="`decoder=queries`"):
        swap(make("bert"), "deberta_emd", decoder="queries")
    with pytest.raises(ValueError, match="rope has no option `bose`"):
        swap(make("llama"), "rope", bose=3.0)
    with pytest.raises(ValueError, match="but a model of 'gpt2' has none"):
        own_rotation(make("gpt2"))
    stretched = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    with pytest.raises(ValueError, match="`rope_type` of the model must be 'default'"):
        own_rotation(make("llama", rope_parameters=stretched))


def test_every_parameter_of_the_encoding_is_in_the_models_own() -> None:
    model = swap(make("llama"), "lrpe_type3")
    inside = {
        id(p) for m in model.modules() if isinstance(m, PositionEncoding) for p in m.parameters()
    }
    assert inside
    assert inside <= {id(p) for p in model.parameters()}
