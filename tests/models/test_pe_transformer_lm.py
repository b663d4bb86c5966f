"""``pe_transformer_lm``: fairseq's model where nothing is new, and what it must not cost."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.encodings import get_entry
from tests.models.helpers import (
    DICTIONARY,
    LAYERS,
    PAD,
    PAIRS,
    build_fairseq_lm,
    build_lm,
    check_noise_of_training,
    mechanism,
    pad_rows,
    random_tokens,
    without_noise,
)
from tests.quick import with_choices

every_pair = pytest.mark.parametrize(("attention", "encoding"), PAIRS)

# fairseq's own options, each of which acts outside or around the attention.
FAIRSEQ_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre_norm": {"decoder_normalize_before": True, "no_decoder_final_norm": False},
    "no_final_norm": {"decoder_normalize_before": True, "no_decoder_final_norm": True},
    "embedding_norm": {"layernorm_embedding": True, "no_scale_embedding": True},
    "untied": {"share_decoder_input_output_embed": False, "activation_fn": "gelu"},
    "projections": {
        "share_decoder_input_output_embed": False,
        "decoder_input_dim": 16,
        "decoder_output_dim": 24,
    },
    "normformer": {"scale_fc": True, "scale_attn": True, "scale_heads": True},
    "adaptive": {
        "share_decoder_input_output_embed": False,
        "adaptive_input": True,
        "adaptive_input_cutoff": "10,20",
        "adaptive_softmax_cutoff": "10,20",
        "tie_adaptive_weights": True,
        "tie_adaptive_proj": True,
    },
}

TIED = FAIRSEQ_OPTIONS["adaptive"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"adaptive_softmax_cutoff": None},
            r"`adaptive_softmax_cutoff` must equal adaptive_input_cutoff=\[10, 20\] with "
            "tie_adaptive_weights, but is None instead",
        ),
        ({"adaptive_softmax_cutoff": "10,25"}, r"but is \[10, 25\] instead"),
        ({"adaptive_input": False}, "`adaptive_input` must be True with tie_adaptive_weights"),
        (
            {"adaptive_softmax_factor": 2.0},
            "`adaptive_softmax_factor` must equal adaptive_input_factor=4 .* is 2.0 instead",
        ),
        (
            {"decoder_output_dim": 16},
            "`decoder_output_dim` must equal decoder_input_dim=32 .* is 16 instead",
        ),
    ],
)
def test_what_cannot_be_tied_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_lm(**{**TIED, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder_output_dim": 16}, "`decoder_output_dim` must equal decoder_input_dim=32 .* 16"),
        (TIED, "`share_decoder_input_output_embed` must be False with adaptive_input"),
    ],
)
def test_what_cannot_be_shared_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_lm(**{**options, "share_decoder_input_output_embed": True})


def test_an_adaptive_input_needs_its_cutoff() -> None:
    untied = {**TIED, "tie_adaptive_weights": False, "tie_adaptive_proj": False}
    with pytest.raises(ValueError, match=r"`adaptive_input_cutoff` must be numbers .* is None"):
        build_lm(**{**untied, "adaptive_input_cutoff": None})


def test_cutoffs_are_tied_as_numbers() -> None:
    model = build_lm(**{**TIED, "adaptive_softmax_cutoff": "[10, 20]"})
    embedding = model.decoder.embed_tokens.weights_for_band(0)[0]
    assert model.decoder.adaptive_softmax.head.word_proj.weight is embedding


def _loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    features = model(tokens)[0]
    return features.float().square().mean()


@pytest.mark.parametrize("case", FAIRSEQ_OPTIONS)
def test_base_is_fairseq(case: str) -> None:
    """Row Base under softmax attention is fairseq's own model: outputs and gradients."""
    reference, model = (build(**FAIRSEQ_OPTIONS[case]) for build in (build_fairseq_lm, build_lm))
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.load_state_dict(reference.state_dict())
    tokens = pad_rows(random_tokens(3, 12), [12, 5, 9], left=False)
    actual, expected = model(tokens)[0], reference(tokens)[0]
    kept = tokens != PAD
    torch.testing.assert_close(actual[kept], expected[kept], rtol=1e-5, atol=1e-5)
    expected[kept].square().mean().backward()
    actual[kept].square().mean().backward()
    gradients = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        grad = gradients[name].grad
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.5])
def test_base_is_fairseq_at_the_start(attention_dropout: float) -> None:
    """The same seed draws the same initial weights, as their order and names are fairseq's."""
    models = []
    for build in (build_fairseq_lm, build_lm):
        torch.manual_seed(3)
        models.append(build(attention_dropout=attention_dropout))
    expected, actual = (model.state_dict() for model in models)
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


def test_learned_is_fairseq() -> None:
    """fairseq's table begins with rows that no position has."""
    reference, model = build_fairseq_lm(decoder_learned_pos=True), build_lm(encoding="learned")
    state = reference.state_dict()
    table = state.pop("decoder.embed_positions.weight")[PAD + 1 :]
    model.load_state_dict({**state, "decoder.position_embedding.weight": table})
    tokens = pad_rows(random_tokens(2, 12), [12, 7], left=False)
    kept = tokens != PAD
    torch.testing.assert_close(
        model(tokens)[0][kept], reference(tokens)[0][kept], rtol=1e-5, atol=1e-5
    )


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                self.numel = max(self.numel, value.numel())
        return result


NO_LOGITS = [p for p in PAIRS if p[0] == "linear" or p[1] in ("base", "rope", "learned")]
# What an encoding of random codes needs per token exceeds the length here, unless made few.
FEW = {"num_realizations": 4, "num_sines": 2, "kernel_size": 8, "randomised.reach": 1024}


@pytest.mark.parametrize(("attention", "encoding"), NO_LOGITS)
def test_nothing_of_length_squared(attention: str, encoding: str) -> None:
    """Neither a mask nor logits, forwards or backwards; linear attention in any case, softmax
    where PyTorch's causal path serves."""
    length = 512
    words = " ".join(f"{k}={FEW[k]}" for k in FEW if k in get_entry(encoding).options)
    model = build_lm(
        attention,
        encoding,
        tokens_per_sample=length,
        max_target_positions=length,
        position_encoding_options=words,
    )
    with LargestTensor() as largest:
        model.train()(random_tokens(1, length))[0].sum().backward()
    assert largest.numel < length * length / 2


def test_the_measure_finds_a_mask() -> None:
    length = 512
    model = build_lm("vanilla", "t5", tokens_per_sample=length, max_target_positions=length)
    with LargestTensor() as largest, torch.no_grad():
        model(random_tokens(1, length))
    assert largest.numel >= length * length


@pytest.mark.parametrize("words", ["base=500 rope.base=600", "rope.base=600 base=500"])
@pytest.mark.parametrize("off", [False, True])
def test_an_option_in_two_spellings_is_refused(words: str, off: bool) -> None:
    options = {"position_encoding_options": words, "no_token_positional_embeddings": off}
    with pytest.raises(ValueError, match=r"twice, with and without `rope\.` before it"):
        build_lm("vanilla", "rope", **options)


@pytest.mark.parametrize("pair", [("vanilla", "t5"), ("linear", "lrpe_type3")])
@pytest.mark.parametrize("offload", [False, True])
def test_checkpointed_activations(pair: tuple[str, str], offload: bool) -> None:
    models = []
    for checkpoint in (False, True):
        torch.manual_seed(2)
        options = {"checkpoint_activations": checkpoint, "offload_activations": offload}
        models.append(build_lm(*pair, dropout=0.1, **options).train())
    tokens, losses = random_tokens(2, 12), []
    for model in models:
        torch.manual_seed(4)
        losses.append(_loss(model, tokens))
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0])
    for plain, checkpointed in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(checkpointed.grad, plain.grad)


def test_offloading_implies_checkpoints() -> None:
    model, runs = build_lm(offload_activations=True).train(), []
    model.decoder.layers[0].fc1.register_forward_hook(lambda *_: runs.append(True))
    _loss(model, random_tokens(2, 12)).backward()
    assert len(runs) == 2  # the second in backward


@pytest.mark.parametrize(
    ("attention", "encoding", "dtype"),
    [
        (*pair, dtype)
        for pair, dtype in with_choices(PAIRS, [torch.bfloat16, torch.float16], mechanism)
    ],
)
def test_half_precision(attention: str, encoding: str, dtype: torch.dtype) -> None:
    # A clamped sum near 0 decides for a whole output, and is another one when rounded.
    options = {"linear_normalizer": "encoded"} if attention == "linear" else {}
    model, tokens = build_lm(attention, encoding, **options), random_tokens(2, 40)
    with torch.no_grad():
        exact = model(tokens)[0]
    model = model.to(dtype)
    logits = model(tokens)[0]
    assert logits.dtype == dtype
    logits.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    if (attention, encoding) == ("linear", "lrpe_type8"):
        return  # its denominator (LRPE, Eq. 39) comes near zero: at half precision far off
    error = (logits.float() - exact).norm() / exact.norm()
    assert error < (0.05 if dtype == torch.bfloat16 else 0.01)


@every_pair
def test_state_survives(attention: str, encoding: str, tmp_path: Path) -> None:
    """What an encoding draws comes back, into a model that drew otherwise and has been used."""
    model, tokens = build_lm(attention, encoding), random_tokens(2, 12)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    torch.manual_seed(77)
    other = build_lm(attention, encoding)
    with torch.no_grad():
        expected, before = model(tokens)[0], other(tokens)[0]
        assert not torch.allclose(before, expected, atol=1e-2)
        other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
        assert torch.equal(other(tokens)[0], expected)


@every_pair
def test_every_parameter_learns(attention: str, encoding: str) -> None:
    """A padded batch in training mode gives each parameter a finite gradient."""
    model = build_lm(attention, encoding, dropout=0.1, attention_dropout=0.1).train()
    tokens = pad_rows(random_tokens(3, 12), [12, 1, 6], left=True)
    logits, _ = model(tokens)
    kept = tokens[:, 1:] != PAD
    targets = tokens[:, 1:][kept]
    torch.nn.functional.cross_entropy(logits[:, :-1][kept], targets).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if not name.endswith("k_proj.bias"):  # softmax does not see a constant in the keys
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize(
    "options",
    [
        {"decoder_layerdrop": 0.5},
        {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4},
        {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1},
    ],
    ids=str,
)
def test_noise_is_of_training_alone(attention: str, options: dict[str, Any]) -> None:
    tokens = random_tokens(2, 8)
    models = [build_lm(attention, "rope", **given) for given in (options, without_noise(options))]
    check_noise_of_training(models[0], models[1], lambda model: model(tokens)[0])


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_scaled_residuals_begin_as_plain_ones_and_learn(attention: str) -> None:
    tokens, plain = random_tokens(2, 8), build_lm(attention, "rope")
    scaled = build_lm(attention, "rope", scale_resids=True)
    scaled.load_state_dict({**scaled.state_dict(), **plain.state_dict()})
    torch.testing.assert_close(scaled(tokens)[0], plain(tokens)[0])
    _loss(scaled, tokens).backward()
    weights = [p for name, p in scaled.named_parameters() if name.endswith("w_resid")]
    assert len(weights) == LAYERS
    assert all(weight.grad.abs().sum() > 0 for weight in weights)
    with torch.no_grad():
        weights[0].mul_(0.5)
        assert not torch.allclose(scaled(tokens)[0], plain(tokens)[0], atol=1e-3)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("character_embeddings", True),
        ("base_layers", 1),
        ("decoder_layers_to_keep", "0,1"),
        ("decoder_xformers_att_config", "{}"),
    ],
)
def test_what_is_not_offered(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"`{option}` must be .* but is {value!r}"):
        build_lm(**{option: value})


def test_shape_of_what_it_returns() -> None:
    model = build_lm("vanilla", "shaw")
    logits, extra = model(random_tokens(2, 7))
    assert logits.shape == (2, 7, len(DICTIONARY))
    assert len(extra["inner_states"]) == 3
    assert extra["attn"] == [None]
    features, _ = model.decoder(random_tokens(2, 7), features_only=True)
    assert features.shape == (2, 7, 32)
    assert model.max_decoder_positions() == model.max_positions() == 64


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ({"no_token_positional_embeddings": True}, "no_token_positional_embeddings"),
        (
            {"encoding": "learned+rope", "no_token_positional_embeddings": True},
            "no_token_positional_embeddings",
        ),
        ({"decoder_learned_pos": True}, "decoder_learned_pos"),
        ({"encoding": "alibi", "decoder_learned_pos": True}, "decoder_learned_pos"),
    ],
)
def test_no_option_of_the_absolute_embedding_is_ignored(
    options: dict[str, Any], ignored: str
) -> None:
    encoding = options.get("encoding", "base")
    with pytest.raises(ValueError, match=f"`{ignored}` must be False .* True with .*'") as error:
        build_lm(**options)
    assert repr(encoding) in str(error.value)


def test_absolute_embedding_beside_a_relative_one() -> None:
    """On as in the paper, learned or off by fairseq's own options, replaced where the encoding
    says so."""
    built = [
        build_lm(encoding="rope"),
        build_lm(encoding="rope", decoder_learned_pos=True),
        build_lm(encoding="rope", no_token_positional_embeddings=True),
        build_lm(encoding="alibi"),
        build_lm(encoding="learned+rope"),
    ]
    embeddings = [model.decoder.position_embedding for model in built]
    labels = [None if embedding is None else embedding.label for embedding in embeddings]
    assert labels == ["base", "learned", None, None, "learned"]


def test_wrong_calls_are_refused() -> None:
    model = build_lm()
    with pytest.raises(ValueError, match="`full_context_alignment` must be False"):
        model.decoder(random_tokens(1, 3), full_context_alignment=True)
    with pytest.raises(ValueError, match=r"`decoder_embed_dim` must be a multiple of .*=5"):
        build_lm(decoder_attention_heads=5)
