"""DeBERTa's mask decoder with the passes of its release: queries go on, keys and values stay."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.encodings import IncompatibleEncodingError, build_encoding
from fairseq_plugins.models.pe_roberta import PERoberta
from tests.models.helpers import LONGEST, PAD, build_lm, random_tokens
from tests.models.roberta import build, enlarge

LAYERS = 3
NORMS = pytest.mark.parametrize("pre_norm", [False, True])


def model_with(decoder: str = "queries", **options: Any) -> PERoberta:
    words = f"decoder={decoder} max_distance=8"
    options = {"encoder_layers": LAYERS, "position_encoding_options": words, **options}
    return enlarge(build(encoding="deberta_emd", no_token_positional_embeddings=False, **options))


def norms(pre_norm: bool) -> dict[str, bool]:
    return {"encoder_normalize_before": pre_norm, "layernorm_embedding": not pre_norm}


def features(model: PERoberta, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model.encoder.extract_features(tokens)[0]


def states(model: PERoberta, tokens: Tensor) -> list[Tensor]:
    """(T, B, C): the embedded input, and the output of each layer."""
    with torch.no_grad():
        stack = model.encoder.sentence_encoder
        found: list[Tensor] = stack(tokens, return_all_hiddens=True)["encoder_states"]
        return found


def table_of(model: PERoberta) -> torch.nn.Parameter:
    (found,) = [p for name, p in model.named_parameters() if name.endswith("absolute.weight")]
    return found


def by_hand(layer: Any, queries: Tensor, content: Tensor, *, pre_norm: bool) -> Tensor:
    """One pass of a layer with its parts, keys and values from ``content``: (T, B, C)."""
    encoding = layer.self_attn.attention.encoding
    norm = layer.self_attn_layer_norm
    q_in, kv_in = (norm(queries), norm(content)) if pre_norm else (queries, content)
    heads, dim = layer.self_attn.num_heads, layer.self_attn.head_dim

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, dim)).permute(1, 2, 0, 3)

    q = split(layer.self_attn.q_proj(q_in))
    k, v = split(layer.self_attn.k_proj(kv_in)), split(layer.self_attn.v_proj(kv_in))
    at = torch.arange(len(queries)).unsqueeze(0)
    logits = (q @ k.mT + encoding.relative_logits(q, k, at, at)) * encoding.logit_scale()
    output = (logits.softmax(-1) @ v).permute(2, 0, 1, 3).flatten(2)
    x = queries + layer.self_attn.out_proj(output)
    x = x if pre_norm else norm(x)
    inner = layer.final_layer_norm(x) if pre_norm else x
    x = x + layer.fc2(layer.activation_fn(layer.fc1(inner)))
    return x if pre_norm else layer.final_layer_norm(x)


@NORMS
def test_the_last_layer_is_the_releases_two_passes(pre_norm: bool) -> None:
    model, tokens = model_with(**norms(pre_norm)), random_tokens(2, 9)
    *_, content, actual = states(model, tokens)
    layer = model.encoder.sentence_encoder.layers[-1]
    with torch.no_grad():
        queries = content + table_of(model)[:9].unsqueeze(1)
        for _ in range(2):
            queries = by_hand(layer, queries, content, pre_norm=pre_norm)
    torch.testing.assert_close(actual, queries, rtol=1e-4, atol=1e-4)


def test_layers_before_the_last_know_no_absolute_position() -> None:
    """So that keys and values, made of the last one's input, do not either."""
    model, tokens = model_with(), random_tokens(2, 9)
    before = states(model, tokens)
    with torch.no_grad():
        table_of(model).add_(torch.randn_like(table_of(model)))
    after = states(model, tokens)
    for i in range(LAYERS):
        assert torch.equal(before[i], after[i])
    assert not torch.allclose(before[LAYERS], after[LAYERS])


def test_both_decoders_have_the_same_weights_and_another_result() -> None:
    inputs, queries, tokens = model_with("inputs"), model_with(), random_tokens(2, 9)
    assert inputs.state_dict().keys() == queries.state_dict().keys() | {
        f"encoder.sentence_encoder.deeper_embeddings.{LAYERS - 2}.{name}"
        for name in inputs.encoder.sentence_encoder.deeper_embeddings[str(LAYERS - 2)].state_dict()
    }
    queries.load_state_dict(inputs.state_dict(), strict=False)
    assert not torch.allclose(features(inputs, tokens), features(queries, tokens))


@NORMS
@pytest.mark.parametrize("left", [False, True])
def test_padding_does_not_count(pre_norm: bool, left: bool) -> None:
    model, tokens = model_with(**norms(pre_norm)), random_tokens(2, 9)
    kept = slice(4, None) if left else slice(0, 5)
    tokens[0, : 4 if left else None] = PAD
    if not left:
        tokens[0] = random_tokens(1, 9)[0]
        tokens[0, 5:] = PAD
    together = features(model, tokens)[0, kept]
    torch.testing.assert_close(together, features(model, tokens[:1, kept])[0], rtol=1e-4, atol=1e-4)


def test_every_parameter_learns() -> None:
    model = model_with().train()
    model(random_tokens(2, 9), features_only=True)[0].square().sum().backward()
    for name, parameter in model.named_parameters():
        if "lm_head" not in name:
            assert parameter.grad is not None and parameter.grad.any(), name
    assert table_of(model).grad[:9].any(1).all()


def test_the_option_has_a_name_of_its_own() -> None:
    words = {"encoder_layers": LAYERS, "position_encoding_options": "max_distance=8"}
    named = build(encoding="deberta_emd_queries", no_token_positional_embeddings=False, **words)
    model, tokens = model_with(), random_tokens(2, 9)
    named.load_state_dict(model.state_dict())
    assert torch.equal(features(named, tokens), features(model, tokens))


def test_the_table_ends() -> None:
    with pytest.raises(ValueError, match=f"max_positions={LONGEST}"):
        features(model_with(), random_tokens(1, LONGEST + 1))


def refused(kind: type[ValueError], message: str) -> Any:
    return pytest.raises(kind, match=message)


def test_what_cannot_have_it_is_refused_by_name() -> None:
    words = "deberta_emd.decoder=queries"
    with refused(IncompatibleEncodingError, "causal model .*'deberta_emd': with `decoder=queries`"):
        build_lm("vanilla", "deberta_emd", position_encoding_options=words)
    with refused(ValueError, "`decoder=queries` .* a layer before the last, .* has 1 instead"):
        model_with(encoder_layers=1)
    with refused(ValueError, "`checkpoint_activations` must be False with `decoder=queries`"):
        model_with(checkpoint_activations=True)
    with refused(ValueError, "`offload_activations` must be False with `decoder=queries`"):
        model_with(offload_activations=True)
    with refused(ValueError, "option `decoder` must be one of inputs, queries"):
        build_encoding("deberta_emd", num_heads=2, head_dim=4, decoder="both")
