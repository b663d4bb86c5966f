"""Every encoding in models of transformers: the same with padding, in steps, and at once."""

import sys

import pytest
import torch
from hub_models import (
    CAUSAL,
    ENCODERS,
    FAMILIES,
    HEADS,
    PAD,
    WITH_ROPE,
    fits,
    generate,
    logits,
    make,
    padded,
    swap,
    words,
)
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DataCollatorWithFlattening,
    DynamicCache,
)

from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError, Stochastic
from fairseq_plugins.integrations.huggingface import own_rotation, state_bytes
from fairseq_plugins.integrations.huggingface.families import NoRotation
from fairseq_plugins.integrations.huggingface.install import installed_modules

NAMES = sorted(ENCODINGS)
# One name of each class is in every run; those that preset other options of it are slow.
FIRST = {ENCODINGS[name].cls: name for name in reversed(NAMES)}
PAIRS = [(name, attention) for name in NAMES for attention in ("vanilla", "linear")]
DOWN, BOTH = (
    [
        pytest.param(*pair, marks=[] if pair[0] in FIRST.values() else [pytest.mark.slow])
        for pair in PAIRS
        if fits(*pair, causal=causal)
    ]
    for causal in (True, False)
)
SOME = ("rope", "lrpe_type2", "t5", "deberta", "learned")
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}


def is_stochastic(model) -> bool:
    return any(isinstance(module, Stochastic) for module in installed_modules(model).modules())


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"num_attention_heads": 4, "num_key_value_heads": 2}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
        # Which transformers' Llama does not read.
        ("llama", {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}}),
        ("gpt_neox", {}),
        ("gpt_neox", {"use_parallel_residual": False}),
        *((family, {}) for family in WITH_ROPE),
        ("phi", {"qk_layernorm": True}),
    ],
    ids=["llama", "grouped", "theta", "share", "gpt_neox", "serial", *WITH_ROPE, "normed"],
)
def test_its_own_rope_swapped_for_ours_gives_its_logits(family, options) -> None:
    model = make(family, **options)
    inputs = [{"input_ids": words()}, padded(words(), 3, "left"), padded(words(), 3, "right")]
    before = [logits(model, **given) for given in inputs]
    told = generate(model, inputs[1])
    swap(model, "rope", **own_rotation(model))
    for given, expected in zip(inputs, before, strict=True):
        counts = given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()
        torch.testing.assert_close(
            logits(model, **given)[counts], expected[counts], atol=1e-5, rtol=0
        )
    assert torch.equal(generate(model, inputs[1]), told)


def test_a_model_of_the_same_configuration_keeps_its_encoding() -> None:
    model = make("llama")
    other = type(model)(model.config).eval()
    before = logits(other, input_ids=words())
    swap(model, "alibi")
    torch.testing.assert_close(logits(other, input_ids=words()), before)
    assert type(type(other)(other.config)) is type(other)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", *WITH_ROPE])
def test_a_replaced_rotation_costs_nothing_and_other_models_rotate(family: str) -> None:
    swap(make(family), "alibi")
    module = sys.modules[f"transformers.models.{family}.modeling_{family}"]
    rotate = module.apply_rotary_pos_emb
    q, k, angles = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.rand(1, 5, 8)
    same = rotate(q, k, *NoRotation()(q, None))
    assert same[0] is q and same[1] is k
    rotated = rotate(q, k, angles.cos(), angles.sin())
    expected = rotate.__wrapped__(q, k, angles.cos(), angles.sin())
    assert all(map(torch.equal, rotated, expected))
    assert not torch.equal(rotated[0], q)
    swap(make(family), "none")
    assert module.apply_rotary_pos_emb is rotate  # replaced once


def sharing(share: float, head_dim: int):
    """A GPT-NeoX that rotates a share of the features of a head."""
    rope = {**PLAIN_ROPE, "partial_rotary_factor": share}
    return make("gpt_neox", hidden_size=HEADS * head_dim, rope_parameters=rope)


@pytest.mark.parametrize(
    ("share", "head_dim"), [(1.0, 16), (0.5, 16), (0.25, 16), (0.25, 24), (0.5, 12), (0.4, 10)]
)
def test_neox_rotates_a_share_of_the_features(share: float, head_dim: int) -> None:
    model = sharing(share, head_dim)
    before = logits(model, input_ids=words())
    swap(model, "rope", **own_rotation(model))
    torch.testing.assert_close(logits(model, input_ids=words()), before, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("share", "head_dim", "count"),
    # Rounded up here and down there; odd there; no share of ours.
    [(0.25, 10, 2), (0.5, 6, 3), (0.25, 20, 5), (0.25, 12, 3), (0.75, 16, 12)],
)
def test_neox_that_rotates_other_features_than_ours_is_refused(share, head_dim, count) -> None:
    found = f"of the {head_dim} features of a head, but is {share}, which are {count}"
    with pytest.raises(ValueError, match=f"`partial_rotary_factor` of the model must.*{found}"):
        own_rotation(sharing(share, head_dim))


@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta", *ENCODERS])
def test_no_encoding_beside_its_own_table_changes_nothing(family: str) -> None:
    model = make(family)
    inputs = {"input_ids": words()}
    before = logits(model, **inputs)
    swap(model, "none", keep_absolute=True)
    torch.testing.assert_close(logits(model, **inputs), before, atol=1e-5, rtol=0)


def check_padding(model) -> None:
    """Neither side changes what the other row or the tokens themselves get."""
    whole = words(1)
    for side in ("left", "right"):
        given = padded(whole, 3, side)
        together = logits(model, **given)
        counts = given["attention_mask"].bool()
        torch.testing.assert_close(together[:1], logits(model, input_ids=whole), **TOLERANCE)
        alone = logits(model, input_ids=whole[:, 3:])
        torch.testing.assert_close(together[1:][counts[1:]], alone[0], **TOLERANCE)


def check_steps(model) -> None:
    """A token at a time, and several, as all at once without a cache."""
    given = padded(words(1), 3, "left")
    tokens, mask = given["input_ids"], given["attention_mask"]
    torch.manual_seed(3)
    cache, parts, start = None, [], 0
    for size in (5, 1, 2, 1):
        end = start + size
        with torch.no_grad():
            output = model(
                input_ids=tokens[:, start:end],
                attention_mask=mask[:, :end],
                past_key_values=cache,
                use_cache=True,
            )
        cache, start = output.past_key_values, end
        parts.append(output.logits)
    counts = mask.bool()
    whole = logits(model, **given, use_cache=False)
    torch.testing.assert_close(torch.cat(parts, 1)[counts], whole[counts], **TOLERANCE)
    assert cache.get_seq_length() == tokens.size(1)


def check_gradients(model) -> None:
    """Each parameter of the encoding has one, and all are finite."""
    torch.manual_seed(3)
    model.train()
    tokens = words()
    model(input_ids=tokens, labels=tokens).loss.backward()
    modules = installed_modules(model)
    for name, parameter in modules.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    own = [parameter.grad for parameter in modules.parameters()]
    assert not own or any(grad is not None for grad in own)


@pytest.mark.parametrize(("name", "attention"), DOWN)
def test_a_causal_model_with_every_encoding(name: str, attention: str) -> None:
    model = swap(make("llama", num_attention_heads=2, num_key_value_heads=1), name, attention)
    check_padding(model)
    check_steps(model)
    check_gradients(model)


@pytest.mark.parametrize(("name", "attention"), BOTH)
def test_a_bidirectional_model_with_every_encoding(name: str, attention: str) -> None:
    model = swap(make("bert"), name, attention)
    if not ENCODINGS[name].facts.needs_lengths:
        check_padding(model)
    check_gradients(model)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_every_other_pair_is_refused_and_leaves_the_model_alone(attention, causal) -> None:
    model = make("llama" if causal else "bert")
    before, kind = logits(model, input_ids=words()), type(model)
    for name in NAMES:
        if not fits(name, attention, causal=causal):
            with pytest.raises(IncompatibleEncodingError, match="cannot use the encoding"):
                swap(model, name, attention)
    assert type(model) is kind
    assert torch.equal(logits(model, input_ids=words()), before)


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("llama", "bert")])
def test_the_other_families_too(family: str, name: str, attention: str) -> None:
    causal = family in CAUSAL
    if not fits(name, attention, causal=causal):
        pytest.skip("refused, as another test says")
    model = swap(make(family), name, attention)
    check_padding(model)
    if causal:
        check_steps(model)
    check_gradients(model)


@pytest.mark.parametrize("name", ["lrpe_type2", "deberta"])
@pytest.mark.parametrize("family", [*WITH_ROPE, *ENCODERS])
def test_families_found_by_structure(family: str, name: str) -> None:
    model = swap(make(family), name, "vanilla" if name == "deberta" else "linear")
    check_padding(model)
    if family in WITH_ROPE:
        check_steps(model)
        given = padded(words(1), 3, "left")
        plain = generate(model, given, use_cache=False)
        assert torch.equal(generate(model, given), plain)


@pytest.mark.parametrize(
    ("family", "options", "match"),
    [
        ("mistral", {"sliding_window": 4}, "`sliding_window` of the model must be None"),
        ("gemma2", {"attn_logit_softcapping": 50.0}, "`attn_logit_softcapping` of the model"),
        ("gemma2", {"attn_logit_softcapping": None, "query_pre_attn_scalar": 7}, "`scaling`"),
        ("bloom", {}, "`model` must have"),
    ],
)
def test_other_attention_is_refused_and_leaves_the_model_alone(family, options, match) -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 23}
    sizes |= {} if family == "bloom" else {"num_key_value_heads": 1, "sliding_window": None}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**{**sizes, **options}))
    kind = type(model)
    with pytest.raises(ValueError, match=match):
        swap(model, "rope")
    assert type(model) is kind


def test_a_window_of_0_is_none() -> None:
    """As Qwen2-MoE has it without `use_sliding_window`."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 23}
    sizes |= {"num_key_value_heads": 1, "num_experts": 2, "num_experts_per_tok": 1}
    sizes |= {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["qwen2_moe"](**sizes))
    swap(model, "rope", "linear")
    assert torch.isfinite(model(words(1)).logits).all()


def test_queries_and_keys_of_other_sizes_are_refused_by_name() -> None:
    config = CONFIG_MAPPING["gpt_bigcode"](n_embd=16, n_head=2, n_layer=1, vocab_size=23)
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(IncompatibleEncodingError, match="`projections=own` would work"):
        swap(model, "deberta")


@pytest.mark.parametrize("beams", [1, 3])
def test_a_generation_draws_once(beams: int) -> None:
    model = swap(make("llama"), "spe", "linear")
    given = padded(words(1), 3, "left")
    plain = generate(model, given, num_beams=beams, use_cache=False)
    assert torch.equal(generate(model, given, num_beams=beams), plain)
    assert installed_modules(model).generation_seed is None


def test_a_bert_that_decodes() -> None:
    model = swap(make("bert", is_decoder=True), "rope", "linear")
    check_padding(model)
    check_steps(model)
    assert generate(model, padded(words(1), 3, "left")).size(1) == 15


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("name", ["lrpe_type3", "cnn"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_generation_with_its_state_says_what_it_says_without(family, name, attention, beams):
    model = swap(make(family), name, attention)
    given = padded(words(1), 3, "left")
    plain = generate(model, given, num_beams=beams, use_cache=False)
    assert torch.equal(generate(model, given, num_beams=beams), plain)


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_the_state_is_constant_under_linear_attention_alone(attention: str) -> None:
    model, sizes = swap(make("llama"), "lrpe_type2", attention), []
    for length in (4, 30):
        output = model(input_ids=words(2, length), use_cache=True)
        sizes.append(state_bytes(output.past_key_values))
    assert (sizes[0] == sizes[1]) == (attention == "linear")


def test_a_model_in_training_keeps_no_state() -> None:
    model = swap(make("llama"), "rope", "linear").train()
    assert model(input_ids=words()).past_key_values is None


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["rope", "t5", "spe", "floater"])
def test_gradient_checkpointing_gives_the_same_gradients(name, reentrant, attention) -> None:
    if not fits(name, attention, causal=True):
        pytest.skip("refused, as another test says")
    model, found = swap(make("llama"), name, attention).train(), []
    for checkpointing in (False, True):
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        model.zero_grad()
        torch.manual_seed(3)
        model(input_ids=words(), labels=words()).loss.backward()
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    for plain, again in zip(*found, strict=True):
        assert (plain is None) == (again is None)
        if plain is not None:
            torch.testing.assert_close(again, plain, **TOLERANCE)


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("name", ["rope", "alibi", "base", "lrpe_type8", "cnn"])
def test_packed_documents_are_as_each_alone(name: str, attention: str) -> None:
    if not fits(name, attention, causal=True):
        pytest.skip("refused, as another test says")
    check_packed(swap(make("llama"), name, attention), 0)


def check_packed(model, first: int) -> None:
    """Each document of a row as it is alone."""
    parts = words(1, 11).split((4, 1, 6), dim=1)
    collate = DataCollatorWithFlattening(position_ids_start=first)
    row = collate([{"input_ids": part[0].tolist()} for part in parts])
    packed = logits(
        model, input_ids=row["input_ids"], position_ids=row["position_ids"], use_cache=False
    )
    alone = [logits(model, input_ids=part) for part in parts]
    torch.testing.assert_close(packed, torch.cat(alone, 1), **TOLERANCE)


def test_nothing_can_follow_packed_documents() -> None:
    """Keys of the last document alone would have to be cached."""
    model, tokens = swap(make("llama"), "rope"), words(1)
    documents = torch.cat([torch.arange(4), torch.arange(5)]).unsqueeze(0)
    assert model(input_ids=tokens, position_ids=documents).past_key_values is None
    with pytest.raises(ValueError, match="`past_key_values` must be left out with `position_ids`"):
        model(input_ids=tokens, position_ids=documents, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="`past_key_values` must be left out with `position_ids`"):
        generate(model, {"input_ids": tokens, "position_ids": documents})


def test_packed_documents_have_no_padding() -> None:
    """Tokens would attend to other documents, as the row would not be read as packed."""
    model, tokens = swap(make("llama"), "rope"), words(1)
    documents = torch.cat([torch.arange(4), torch.arange(5)]).unsqueeze(0)
    for hidden in (0, -1):
        mask = torch.ones_like(tokens)
        mask[:, hidden] = 0
        with pytest.raises(ValueError, match="`attention_mask` must be left out with `position_id"):
            logits(model, input_ids=tokens, position_ids=documents, attention_mask=mask)


@pytest.mark.parametrize("family", ["llama", "bert", "distilbert"])
def test_a_cache_that_nobody_would_read_is_refused(family: str) -> None:
    model, cache = swap(make(family), "rope"), DynamicCache()
    if family == "llama":
        model(input_ids=words(), past_key_values=cache)
        model.train().activation_checkpointing_enable()
    with pytest.raises(ValueError, match="`past_key_values` must be left out with"):
        model(input_ids=words(), past_key_values=cache)


@pytest.mark.parametrize("family", ["llama", "bert"])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_padding_between_tokens_is_no_neighbour(attention: str, family: str) -> None:
    """As when generation goes on after prompts padded on the right, with a cache or without."""
    model, tokens = swap(make(family), "cnn", attention), words(1)
    mask = torch.ones_like(tokens)
    mask[:, 3:6] = 0
    whole = logits(model, input_ids=tokens, attention_mask=mask)[mask.bool()]
    alone = logits(model, input_ids=tokens[mask.bool()].unsqueeze(0))
    torch.testing.assert_close(whole, alone[0], **TOLERANCE)


def test_bounds_of_documents_need_positions() -> None:
    """transformers' collator gives both, of which another attention reads the bounds."""
    model = swap(make("llama"), "rope")
    rows = [{"input_ids": part[0].tolist()} for part in words(1, 11).split((4, 7), dim=1)]
    options = {"return_flash_attn_kwargs": True, "return_tensors": "pt"}
    given = DataCollatorWithFlattening(**options)(rows)
    del given["labels"]
    with torch.no_grad():
        packed = model(**given).logits
    plain = {name: given[name] for name in ("input_ids", "position_ids")}
    torch.testing.assert_close(packed, logits(model, **plain))
    del given["position_ids"]
    with pytest.raises(ValueError, match="`position_ids` must be given beside `cu_seq_lens_q`"):
        model(**given)


@pytest.mark.parametrize("name", ["cnn", "learned"])
def test_generation_from_embeddings_is_that_from_their_tokens(name: str) -> None:
    model, tokens = swap(make("llama"), name), words()
    embeddings = {"inputs_embeds": model.get_input_embeddings()(tokens)}
    expected = generate(model, {"input_ids": tokens})[:, tokens.size(1) :]
    assert torch.equal(generate(model, embeddings), expected)


@pytest.mark.parametrize("name", ["alibi", "base"])
def test_documents_for_roberta_count_from_0_or_from_where_it_does(name: str) -> None:
    model = swap(make("roberta"), name)
    for first in (0, PAD + 1):
        check_packed(model, first)
        uneven = torch.tensor([[0, 1, 2, 0, 2]]) + first
        with pytest.raises(ValueError, match=f"must count from {first} in each"):
            logits(model, input_ids=words(1, 5), position_ids=uneven)
    with pytest.raises(ValueError, match=r"`position_ids` must be at least 2.* have 1 instead"):
        check_packed(model, PAD)


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_a_roberta_that_decodes(attention: str) -> None:
    """transformers hands it positions from 0, with a cache those of the last token alone."""
    model = swap(make("roberta", is_decoder=True), "base+rope", attention)
    check_steps(model)
    given = padded(words(1), 3, "left")
    plain = generate(model, given, use_cache=False)
    assert torch.equal(generate(model, given), plain)
    row = generate(model, {"input_ids": words(1)[:, 3:]})
    assert torch.equal(plain[1:, 3:], row)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_no_token_comes_before_the_first(family: str) -> None:
    first = PAD + 1 if family == "roberta" else 0
    model, tokens = swap(make(family), "base"), words()
    counted, expected = torch.arange(9).unsqueeze(0), logits(model, input_ids=words())
    for places in (counted, counted + first):
        torch.testing.assert_close(logits(model, input_ids=tokens, position_ids=places), expected)
    spread = 2 * counted + first
    assert not torch.allclose(logits(model, input_ids=tokens, position_ids=spread), expected)
    lower = f"`position_ids` must be at least {first}.* have {first - 1} instead"
    for places in (counted, 2 * counted):
        with pytest.raises(ValueError, match=lower):
            logits(model, input_ids=tokens, position_ids=places + first - 1)


@pytest.mark.parametrize("name", ["learned", "base", "alibi"])
@pytest.mark.parametrize(("family", "hidden"), [("roberta", PAD), ("bert", -100)])
def test_padding_may_come_before_the_first_token(family: str, hidden: int, name: str) -> None:
    """As RoBERTa has it; the positions of tokens may be any from the first on."""
    model, given = swap(make(family), name), padded(words(1), 3, "left")
    row, mask = given["input_ids"][1:], given["attention_mask"][1:]
    places = (mask.cumsum(1) + 5).where(mask == 1, hidden)
    together = logits(model, input_ids=row, attention_mask=mask, position_ids=places)
    alone = logits(model, input_ids=row[:, 3:], position_ids=places[:, 3:])
    torch.testing.assert_close(together[:, 3:], alone, **TOLERANCE)


def test_positions_that_are_given_count() -> None:
    model, tokens = swap(make("gpt2"), "base"), words()
    shifted = torch.arange(9).unsqueeze(0) + 5
    here = logits(model, input_ids=tokens)
    assert not torch.allclose(logits(model, input_ids=tokens, position_ids=shifted), here)
    torch.testing.assert_close(
        logits(model, input_ids=tokens, position_ids=torch.arange(9).unsqueeze(0)), here
    )


def test_a_second_swap_replaces_the_first() -> None:
    once = swap(make("llama"), "alibi")
    twice = swap(swap(make("llama"), "learned"), "alibi")
    given = {"input_ids": words()}
    torch.testing.assert_close(logits(twice, **given), logits(once, **given))


def test_weights_of_attention_come_with_output_attentions() -> None:
    model = swap(make("llama"), "lrpe_type2")
    given = padded(words(1), 3, "left")
    output = model(**given, output_attentions=True)
    assert len(output.attentions) == 2
    weights = output.attentions[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 9))
    assert not weights[:1, :, 0, 1:].any()
    assert given["input_ids"][1, 0] == PAD and not weights[1, :, 4:, :3].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_a_head_returns_weights_and_hidden_states(family: str) -> None:
    """Its class, in which transformers looks up what it returns, is replaced itself."""
    base = swap(make(family).base_model, "rope")
    output = base(words(), output_attentions=True, output_hidden_states=True)
    assert (len(output.attentions), len(output.hidden_states)) == (2, 3)
