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
from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError
from fairseq_plugins.models.pe_transformer import PETransformer, PETransformerConfig
from fairseq_plugins.modules.transformer_options import ATTENTION_SITES
from tests.models.helpers import (
    DICTIONARY,
)
from tests.models.translation import (
    TARGET,
    TASK,
    TINY,
    batch,
    build,
    build_fairseq,
    lengths_of,
    one_pass,
    sources,
    targets,
)

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
    (actual, weights), (expected, others) = (one_pass(m, left) for m in (model, reference))
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
        one_pass(model, True)[0], one_pass(reference, True)[0], rtol=1e-5, atol=1e-5
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
        for place, inside in zip(ATTENTION_SITES, expected, strict=True):
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


@pytest.mark.parametrize(
    "options",
    [
        {f"{side}_position_encoding": "lrpe_type2" for side in ("encoder", "decoder")},
        {f"{side}_position_encoding_options": "" for side in ("encoder", "decoder")},
        {"encoder_position_encoding": "rope", "decoder_position_encoding_options": "base=500"},
        {
            **{f"{side}_position_encoding": "rope" for side in ("encoder", "decoder")},
            "cross_position_encoding": "shaw_keys",
        },
    ],
)
def test_common_options_that_no_side_takes_are_refused(options: dict[str, str]) -> None:
    """They would act nowhere, and a misspelt one would never be found."""
    words = "max_distance=5 bogus=1"
    message = f"`position_encoding_options` must be left out if .* is '{words}' instead"
    with pytest.raises(ValueError, match=message):
        build(position_encoding="shaw_keys", position_encoding_options=words, **options)


@pytest.mark.parametrize(
    ("name", "common", "own"),
    [("attention_type", "linear", "vanilla"), ("position_encoding", "alibi", "rope")],
)
def test_what_every_attention_overrides_is_refused(name: str, common: str, own: str) -> None:
    """It would be ignored in silence."""
    sides = {f"{side}_{name}": own for side in ("encoder", "decoder")}
    message = f"`{name}` must be left out if .* is '{common}' instead; use `encoder_{name}`"
    with pytest.raises(ValueError, match=message):
        build(**sides, **{name: common})
    build(**{**sides, "decoder_" + name: None}, **{name: common})


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
    if place == "cross" and any(hasattr(cls, "reposition") for cls in entry.classes):
        return "it draws new positions for one sequence"
    if place == "cross" and "embed" in entry.hooks:
        return "its hook `embed` acts on the input of a stack"
    missing = sorted(entry.hooks - ATTENTIONS[attention].supported_hooks)
    if missing:
        return f"its hook{'s' * (len(missing) > 1)} `{'`, `'.join(missing)}` need"
    return entry.refusal(causal=place == "decoder")


EVERYWHERE = [
    (place, attention, encoding)
    for place in ATTENTION_SITES
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
        ({"min_cosine": 0.1}, ["`min_cosine` must be 0.2 where no attention is linear", "0.1"]),
        (
            {
                "cross_attention_type": "linear",
                "cross_position_encoding": "rope",
                "linear_normalizer": "encoded",
                "min_cosine": 2,
            },
            ["`min_cosine` must be between 0 and 1, but is 2"],
        ),
        (
            {"attention_type": "linear", "linear_normalizer": "clamped", "min_cosine": 0.1},
            ["`min_cosine` must be 0.2 with linear_normalizer=clamped", "0.1"],
        ),
        (
            {"attention_type": "linear", "linear_normalizer": "encoded", "linear_epsilon": 0.1},
            ["`linear_epsilon` must be 1e-06 with linear_normalizer=encoded", "0.1"],
        ),
        (
            {"attention_type": "linear", "linear_normalizer": "clamped", "linear_epsilon": 0},
            ["`linear_epsilon` must be positive", "0"],
        ),
        (
            {"attention_type": "linear", "linear_output_norm": "rms_norm"},
            ["`linear_output_norm` must be layer_norm with linear_normalizer=clamped"],
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


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_to_keep_are_not_offered(side: str) -> None:
    """They come from `--model-overrides` and not from the options of the model."""
    config = PETransformerConfig()
    for name, value in {**TINY, f"{side}_layers_to_keep": "0"}.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=f"`{side}_layers_to_keep` must be None .* is '0'"):
        PETransformer.build_model(config, TASK)
