"""``pe_transformer``: fairseq's model where nothing is new, and every encoding in every place."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from omegaconf import OmegaConf

from fairseq_plugins.attention import ATTENTIONS, LinearAttention
from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError, PositionEncoding
from fairseq_plugins.models.pe_transformer import PETransformer, PETransformerConfig
from tests.models.helpers import (
    DICTIONARY,
    LONGEST,
    PAD,
    check_noise_of_training,
    pad_rows,
    without_noise,
)
from tests.models.translation import (
    TARGET,
    TINY,
    batch,
    build,
    build_fairseq,
    lengths_of,
    sources,
    targets,
)

PLACES = ("encoder", "decoder", "cross")

# fairseq's own options, each of which acts outside or around the attention.
FAIRSEQ_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre_norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "no_final_norm": {"decoder_normalize_before": True, "no_decoder_final_norm": True},
    "embedding_norm": {"layernorm_embedding": True, "no_scale_embedding": True},
    "one_table": {"share_decoder_input_output_embed": True, "activation_fn": "gelu"},
    "widths": {
        "decoder_embed_dim": 16,
        "decoder_ffn_embed_dim": 24,
        "decoder_output_dim": 20,
        "decoder_attention_heads": 2,
        "encoder_layers": 3,
    },
    "adaptive": {"adaptive_softmax_cutoff": "10,20"},
}


def _pass(model: Any, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and alignments of the words of a padded batch."""
    torch.manual_seed(8)
    source = batch(sources([9, 4, 7]), left=left)
    target = pad_rows(targets(3, 8), [5, 8, 6], left=False)
    logits, extra = model(source, lengths_of(source), target)
    kept = target != PAD
    return logits[kept], extra["attn"][0][kept]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("case", FAIRSEQ_OPTIONS)
def test_base_is_fairseq(case: str, left: bool) -> None:
    """Row Base under softmax attention is fairseq's own model: initial values, and after loading
    its weights the outputs, alignments and gradients, with padding on both sides."""
    models: list[Any] = []
    for make in (build_fairseq, build):
        torch.manual_seed(3)
        models.append(make(**FAIRSEQ_OPTIONS[case]))
    reference, model = models
    assert list(model.state_dict()) == list(reference.state_dict())
    for name, value in reference.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.load_state_dict(reference.state_dict())
    (actual, weights), (expected, others) = (_pass(m, left) for m in (model, reference))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights, others, rtol=1e-5, atol=1e-5)
    for output in (actual, expected):
        output.square().mean().backward()
    gradients = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[name].grad, rtol=1e-4, atol=1e-5, msg=name
        )


def test_share_all_embeddings_is_fairseq() -> None:
    """With one dictionary for both languages."""
    task = SimpleNamespace(source_dictionary=DICTIONARY, target_dictionary=DICTIONARY)
    options = {**TINY, "share_all_embeddings": True}
    reference = TransformerModel.build_model(Namespace(**options), task).eval()
    model = build(task, share_all_embeddings=True)
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight
    model.load_state_dict(reference.state_dict())
    torch.testing.assert_close(
        _pass(model, True)[0], _pass(reference, True)[0], rtol=1e-5, atol=1e-5
    )
    with pytest.raises(ValueError, match="requires a joined dictionary"):
        build(share_all_embeddings=True)


def test_defaults_are_fairseqs() -> None:
    """Of each option that the base architecture has; what is unset there follows others."""
    args = Namespace()
    base_architecture(args)
    built = build(encoder_embed_dim=32, encoder_ffn_embed_dim=48).cfg
    assert built.decoder.embed_dim == built.decoder.output_dim == 32
    assert built.decoder.ffn_embed_dim == 48
    config = PETransformerConfig()
    follow = {"decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_output_dim"}
    shared = [n for n in vars(args) if n in config.__dataclass_fields__ and n not in follow]
    assert len(shared) > 25
    for name in shared:
        assert getattr(config, name) == getattr(args, name), name


def test_flags_are_flat() -> None:
    """fairseq's own names, and those of every place."""
    parser = ArgumentParser(argument_default=SUPPRESS)
    PETransformer.add_args(parser)
    words = ["--encoder-layers", "3", "--share-decoder-input-output-embed"]
    words += ["--encoder-attention-type", "linear", "--cross-position-encoding", "t5"]
    expected = {
        "encoder_layers": 3,
        "share_decoder_input_output_embed": True,
        "encoder_attention_type": "linear",
        "cross_position_encoding": "t5",
    }
    parsed = vars(parser.parse_args(words))
    assert {name: parsed[name] for name in expected} == expected


def _inside(model: PETransformer, place: str) -> tuple[str, str, bool]:
    """The attention of a place's first layer, its encoding and whether it is causal."""
    stack = model.encoder if place == "encoder" else model.decoder
    layer = stack.layers[0]
    attention = (layer.encoder_attn if place == "cross" else layer.self_attn).attention
    encoding = attention.encoding
    return attention.name, getattr(encoding, "label", "-"), attention.causal


def test_places_are_chosen_separately() -> None:
    cases: list[tuple[dict[str, str], tuple[str, str], tuple[str, str], tuple[str, str]]] = [
        ({}, ("vanilla", "-"), ("vanilla", "-"), ("vanilla", "-")),
        (
            {"attention_type": "linear", "position_encoding": "rope"},
            ("linear", "rope"),
            ("linear", "rope"),
            ("vanilla", "-"),
        ),
        (
            {"position_encoding": "lrpe_type2", "encoder_attention_type": "linear"},
            ("linear", "lrpe_type2"),
            ("vanilla", "lrpe_type2"),
            ("vanilla", "-"),
        ),
        (
            {
                "encoder_position_encoding": "t5",
                "decoder_position_encoding": "rope",
                "decoder_attention_type": "linear",
                "cross_position_encoding": "shaw_keys",
            },
            ("vanilla", "t5"),
            ("linear", "rope"),
            ("vanilla", "shaw_keys"),
        ),
        (
            {"attention_type": "linear", "cross_attention_type": "linear"},
            ("linear", "-"),
            ("linear", "-"),
            ("linear", "-"),
        ),
    ]
    for options, *expected in cases:
        model = build(**options)
        for place, inside in zip(PLACES, expected, strict=True):
            assert _inside(model, place) == (*inside, place == "decoder"), (options, place)


def test_options_go_with_the_encoding_they_are_of() -> None:
    """Those of the common one to each place that has it; a place's own to that place."""
    model = build(
        position_encoding="shaw_keys",
        position_encoding_options="max_distance=5",
        decoder_position_encoding="rope",
        cross_position_encoding="shaw_keys",
        cross_position_encoding_options="max_distance=7",
    )
    layers = (model.encoder.layers[0].self_attn, model.decoder.layers[0].encoder_attn)
    assert [layer.attention.encoding.max_distance for layer in layers] == [5, 7]
    model = build(
        position_encoding="shaw_keys",
        position_encoding_options="max_distance=5",
        decoder_position_encoding_options="max_distance=6",
    )
    layers = (model.encoder.layers[0].self_attn, model.decoder.layers[0].self_attn)
    assert [layer.attention.encoding.max_distance for layer in layers] == [5, 6]


def test_an_empty_word_is_a_value() -> None:
    """A side may take back the common options."""
    model = build(
        position_encoding="shaw_keys",
        position_encoding_options="max_distance=5",
        encoder_position_encoding_options="",
    )
    assert model.encoder.layers[0].self_attn.attention.encoding.max_distance == 64


def test_a_composed_config_builds_the_same() -> None:
    """What Hydra hands over is no dataclass instance, and may not be added to."""
    options = {**TINY, "encoder_attention_type": "linear", "position_encoding": "lrpe_type3"}
    composed = OmegaConf.structured(PETransformerConfig(**options))
    OmegaConf.set_struct(composed, True)
    states = []
    for config in (composed, PETransformerConfig(**options)):
        torch.manual_seed(4)
        task = SimpleNamespace(source_dictionary=DICTIONARY, target_dictionary=TARGET)
        states.append(PETransformer.build_model(config, task).state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def _reason(place: str, attention: str, encoding: str) -> str | None:
    """A part of the message with which a combination is refused; None where it is not."""
    entry = ENCODINGS[encoding]
    if place == "cross" and "embed" in entry.hooks:
        return "its hook `embed` acts on the input of a stack"
    missing = sorted(entry.hooks - ATTENTIONS[attention].supported_hooks)
    if missing:
        return f"its hook `{'`, `'.join(missing)}`"
    return entry.refusal(causal=place == "decoder")


EVERYWHERE = [
    (place, attention, encoding)
    for place in PLACES
    for attention in ATTENTIONS
    for encoding in ENCODINGS
]


@pytest.mark.parametrize(("place", "attention", "encoding"), EVERYWHERE)
def test_every_encoding_in_every_place(place: str, attention: str, encoding: str) -> None:
    """Either it trains, every parameter with a finite gradient, or it is refused by name."""
    options = {f"{place}_attention_type": attention, f"{place}_position_encoding": encoding}
    reason = _reason(place, attention, encoding)
    if reason:
        with pytest.raises(IncompatibleEncodingError) as error:
            build(**options)
        name = {"cross": "cross-attention"}.get(place, f"{place} self-attention")
        head = f"{name} ({attention}, {encoding}): "
        for part in (head, reason, f"{place}_position_encoding", f"{place}_attention_type"):
            assert part in str(error.value)
        return
    model = build(**options).train()
    source, target = batch(sources([9, 4]), left=True), targets(2, 7)
    logits = model(source, lengths_of(source), target)[0]
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_the_refusal_says_which_option_to_set() -> None:
    """A common encoding that one side cannot have."""
    with pytest.raises(IncompatibleEncodingError) as error:
        build(position_encoding="dpe")
    for part in ("decoder self-attention", "'dpe'", "decoder_position_encoding=base"):
        assert part in str(error.value)
    build(position_encoding="dpe", decoder_position_encoding="base")
    with pytest.raises(IncompatibleEncodingError) as error:
        build(position_encoding="xpos")
    assert "encoder_position_encoding=base" in str(error.value)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"position_encoding": "ropee"}, ["encoder self-attention", "Did you mean 'rope'"]),
        ({"decoder_position_encoding": "ropee"}, ["decoder self-attention", "'rope'"]),
        (
            {"position_encoding": "rope", "encoder_position_encoding_options": "x=1"},
            ["encoder self-attention", "no option `x`"],
        ),
        ({"cross_position_encoding": "base+t5"}, ["cross-attention", "'base'", "`embed`"]),
        ({"encoder_attention_heads": 5}, ["`encoder_embed_dim` must be a multiple of", "=5"]),
        ({"decoder_embed_dim": 30}, ["`decoder_embed_dim` must be a multiple of", "30"]),
        ({"no_token_positional_embeddings": True}, ["`no_token_positional_embeddings`"]),
        (
            {"share_decoder_input_output_embed": True, "decoder_output_dim": 16},
            ["`decoder_output_dim` must be decoder_embed_dim=32", "16"],
        ),
        (
            {
                "cross_position_encoding": "deberta",
                "decoder_embed_dim": 16,
            },
            ["`projections` must be `own`"],
        ),
        ({"linear_normalizer": "plain"}, ["`linear_normalizer` must be encoded where no", "plain"]),
        (
            {"cross_attention_type": "linear", "cross_position_encoding": "rope", "min_cosine": 2},
            ["`min_cosine` must be between 0 and 1, but is 2"],
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build(**options)
    assert all(part in str(error.value) for part in parts), error.value


@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
def test_options_of_linear_attention_reach_wherever_it_is(place: str) -> None:
    options = {f"{place}_attention_type": "linear", f"{place}_position_encoding": "rope"}
    model = build(**options, min_cosine=0.1, linear_normalizer="encoded", feature_map="relu")
    found = [m for m in model.modules() if isinstance(m, LinearAttention)]
    assert len(found) == 2
    assert {(m.min_cosine, m.feature_map) for m in found} == {(0.1, torch.relu)}


def test_cross_attention_sees_all_of_the_source() -> None:
    """Also what lies beyond the target's position, and with a linear attention; with padding."""
    for attention in ATTENTIONS:
        model = build(cross_attention_type=attention, cross_position_encoding="rope")
        source, target = batch(sources([9]), left=True), targets(1, 3)
        changed = source.clone()
        changed[0, -2] = DICTIONARY.nspecial + (changed[0, -2] + 1) % 20
        logits = [model(s, lengths_of(s), target)[0][0, 0] for s in (source, changed)]
        assert (logits[0] - logits[1]).abs().max() > 1e-4


def test_relative_cross_attention_counts_words() -> None:
    """Target word s against source word t: t - s, whatever the padding."""
    model = build(cross_position_encoding="t5")
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    encoding = model.decoder.layers[0].encoder_attn.attention.encoding
    original = encoding.attn_bias

    def spy(q_positions: torch.Tensor, k_positions: torch.Tensor) -> torch.Tensor:
        seen.append((q_positions, k_positions))
        return original(q_positions, k_positions)

    encoding.attn_bias = spy
    source = batch(sources([3, 5]), left=True)
    target = pad_rows(targets(2, 4), [2, 4], left=True)
    model(source, lengths_of(source), target)
    assert seen
    for queries, keys in seen:
        assert queries.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
        assert keys.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_deeper_layers_get_their_positions(side: str) -> None:
    """deberta_emd has them before the last two layers alone; the table acts through these."""
    model = build(**{f"{side}_position_encoding": "deberta_emd", f"{side}_layers": 3})
    stack = getattr(model, side)
    assert stack.position_embedding is None
    assert sorted(stack.deeper_embeddings) == ["1", "2"]
    outputs = [_pass(model, True)[0]]
    with torch.no_grad():
        stack.deeper_embeddings["2"].absolute.weight.normal_()
    outputs.append(_pass(model, True)[0])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-3


def test_what_is_shared_by_layers_is_computed_once() -> None:
    """One bias per pass and place, however many layers."""
    model = build(
        position_encoding="t5",
        cross_position_encoding="t5",
        encoder_layers=3,
        decoder_layers=3,
    )
    source, target = batch(sources([5, 5]), left=True), targets(2, 4)
    model.train()
    calls = dict.fromkeys(PLACES, 0)
    for place in PLACES:
        stack = model.encoder if place == "encoder" else model.decoder
        layers = [x.encoder_attn if place == "cross" else x.self_attn for x in stack.layers]
        assert len({layer.attention.encoding for layer in layers}) == 1
        encoding = layers[0].attention.encoding

        def spy(*args: Any, _place: str = place, _original: Any = encoding.attn_bias) -> Any:
            calls[_place] += 1
            return _original(*args)

        encoding.attn_bias = spy
    model(source, lengths_of(source), target)
    assert calls == {"encoder": 1, "decoder": 1, "cross": 1}


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("offload", [False, True])
def test_checkpointed_activations(attention: str, offload: bool) -> None:
    """Also with padding before the target, which a recomputed cross-attention has to know."""
    options = {"attention_type": attention, "position_encoding": "lrpe_type2"}
    options |= {"cross_attention_type": attention, "cross_position_encoding": "rope"}
    models = []
    for checkpoint in (False, True):
        torch.manual_seed(2)
        more = {"checkpoint_activations": checkpoint, "offload_activations": offload}
        models.append(build(**options, dropout=0.1, **more).train())
    source = batch(sources([6, 9]), left=True)
    target, losses = pad_rows(targets(2, 7), [4, 7], left=True), []
    for model in models:
        torch.manual_seed(4)
        logits = model(source, lengths_of(source), target)[0]
        losses.append(logits[target != PAD].square().mean())
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0])
    for plain, checkpointed in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(checkpointed.grad, plain.grad)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_layerdrop": 0.5},
        {"decoder_layerdrop": 0.5},
        {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4},
        {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_noise_is_of_training_alone(attention: str, options: dict[str, Any]) -> None:
    places = {"attention_type": attention, "cross_attention_type": attention}
    models = [
        build(position_encoding="rope", **places, **given)
        for given in (options, without_noise(options))
    ]
    source, target = batch(sources([6, 9]), left=True), targets(2, 7)

    def logits(model: Any) -> torch.Tensor:
        output: torch.Tensor = model(source, lengths_of(source), target)[0]
        assert output.shape == (2, 7, len(TARGET))
        return output

    check_noise_of_training(models[0], models[1], logits)


def test_absolute_embedding_beside_a_relative_one() -> None:
    """On as in the paper, learned or off by fairseq's own options, on both sides."""
    options: list[dict[str, Any]] = [
        {},
        {"encoder_learned_pos": True},
        {"decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
    ]
    labels = []
    for given in options:
        model = build(position_encoding="rope", **given)
        sides = [side.position_embedding for side in (model.encoder, model.decoder)]
        labels.append([None if side is None else side.label for side in sides])
    assert labels == [["base", "base"], ["learned", "base"], ["base", "learned"], [None, None]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_half_precision(attention: str, dtype: torch.dtype) -> None:
    options = {"attention_type": attention, "position_encoding": "lrpe_type2"}
    model = build(**options, cross_attention_type=attention)
    source, target = batch(sources([30, 40]), left=True), targets(2, 40)
    with torch.no_grad():
        exact = model(source, lengths_of(source), target)[0]
    logits = model.to(dtype)(source, lengths_of(source), target)[0]
    assert logits.dtype == dtype
    error = (logits.float() - exact).norm() / exact.norm()
    assert error < (0.05 if dtype == torch.bfloat16 else 0.01)


def test_alignments() -> None:
    """Softmax cross-attention has weights over the source; a linear one has none to print."""
    source, target = batch(sources([6, 9]), left=True), targets(2, 7)
    weights = build()(source, lengths_of(source), target)[1]["attn"][0]
    assert weights.shape == (2, 7, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7))
    model = build(cross_attention_type="linear")
    assert model(source, lengths_of(source), target)[1]["attn"] == [None]
    generation = SimpleNamespace(print_alignment="hard", no_beamable_mm=False, beam=5)
    with pytest.raises(ValueError, match="`print_alignment` must be off"):
        model.prepare_for_inference_(SimpleNamespace(generation=generation))


def test_every_parameter_of_an_encoding_is_in_the_state() -> None:
    """And loads into a model that drew other ones."""
    options = {"encoder_position_encoding": "deberta_emd", "decoder_position_encoding": "floater"}
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(build(**options, cross_position_encoding="xl"))
    encodings = [m for m in models[0].modules() if isinstance(m, PositionEncoding)]
    assert len(encodings) > 3
    models[1].load_state_dict(models[0].state_dict())
    torch.testing.assert_close(_pass(models[1], True)[0], _pass(models[0], True)[0])
    assert models[0].max_positions() == (LONGEST, LONGEST)


def test_the_first_word_has_a_position_in_tupe() -> None:
    """It is no [CLS], which RoBERTa's first token is."""
    model = build(position_encoding="tupe", cross_position_encoding="tupe")
    assert not [name for name, _ in model.named_parameters() if name.endswith("_cls")]
