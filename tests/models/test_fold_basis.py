"""P in the projections' weights: a model made ready for generation computes what it did."""

import pytest
import torch
from helpers import PAIRS, build_lm, random_tokens
from torch import Tensor
from translation import TARGET, batch, build, sources

REFLECTED = ["lrpe_type1", "lrpe_type2", "lrpe_type3", "lrpe_type4", "yarn_lrpe"]
FOLDED = [*REFLECTED, "lrpe_dct"]  # P is real, and no permutation
COMPOSED = "lrpe_type2+alibi"  # and nothing beside it reads queries and keys


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual / expected.abs().max(), expected / expected.abs().max())


@torch.no_grad()
@pytest.mark.parametrize(
    ("attention", "name"),
    [*PAIRS, ("vanilla", "alibi+shaw+lrpe_type4"), ("vanilla", COMPOSED)],
)
def test_a_language_model_ready_for_generation_is_the_same(attention, name):
    model, tokens = build_lm(attention, name), random_tokens(2, 9)
    for layer in model.decoder.layers:
        layer.self_attn.q_proj.bias.normal_()
    if model.is_stochastic:
        torch.manual_seed(1)
    expected = model(tokens)[0]
    projections = [layer.self_attn.k_proj.weight for layer in model.decoder.layers]
    before = [weight.clone() for weight in projections]
    model.make_generation_fast_()
    is_folded = attention == "vanilla" and name in [*FOLDED, COMPOSED]
    for weight, old in zip(projections, before, strict=True):
        assert torch.equal(weight, old) != is_folded
    if model.is_stochastic:
        torch.manual_seed(1)
    close(model(tokens)[0], expected)
    state: dict = {}
    if is_folded:
        steps = [model(tokens[:, : i + 1], incremental_state=state)[0] for i in range(9)]
        close(torch.cat(steps, dim=1), expected)


@torch.no_grad()
@pytest.mark.parametrize("encoder", ["vanilla", "linear"])
def test_a_translation_model_is_the_same(encoder):
    """Of the linear encoder nothing is folded: the feature map stands in between."""
    model = build(
        position_encoding="lrpe_type2",
        encoder_attention_type=encoder,
        cross_position_encoding="lrpe_type1",
    )
    arguments = (
        batch(sources([9, 5]), left=True),
        torch.tensor([9, 5]),
        torch.randint(TARGET.nspecial, len(TARGET), (2, 7)),
    )
    expected = model(*arguments)[0]
    places = {
        "encoder": model.encoder.layers[0].self_attn,
        "decoder": model.decoder.layers[0].self_attn,
        "cross": model.decoder.layers[0].encoder_attn,
    }
    before = {name: place.q_proj.weight.clone() for name, place in places.items()}
    model.make_generation_fast_()
    changed = {n for n, place in places.items() if not torch.equal(place.q_proj.weight, before[n])}
    assert changed == {"decoder", "cross"} | ({"encoder"} if encoder == "vanilla" else set())
    close(model(*arguments)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("name", FOLDED)
def test_weights_are_saved_as_trained_and_loaded_as_saved(name):
    """A model that has generated is saved, and gets the weights of another checkpoint."""
    model, other, tokens = build_lm("vanilla", name), build_lm("vanilla", name), random_tokens(2, 9)
    expected, trained = model(tokens)[0], {n: x.clone() for n, x in model.state_dict().items()}
    model.make_generation_fast_()
    for weight, old in zip(model.state_dict().values(), trained.values(), strict=True):
        torch.testing.assert_close(weight, old, atol=1e-5, rtol=1e-5)
    close(model(tokens)[0], expected)
    other.make_generation_fast_()
    other.load_state_dict(trained)
    close(other(tokens)[0], expected)


@torch.no_grad()
def test_projections_that_cannot_be_written_are_left_as_they_are():
    model, tokens = build_lm("vanilla", "lrpe_type1"), random_tokens(2, 9)
    for layer in model.decoder.layers:
        layer.self_attn.q_proj = torch.nn.Sequential(layer.self_attn.q_proj)
    expected = model(tokens)[0]
    model.make_generation_fast_()
    close(model(tokens)[0], expected)
