"""Randomised positions in whole models: one draw per pass of training, none in evaluation."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings.position_bounds import with_end
from fairseq_plugins.models.pe_transformer_lm import PETransformerLM
from tests.models import roberta
from tests.models.helpers import LONGEST, build_lm, random_tokens

REACH = 8 * LONGEST


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What passes of a model are seeded with, in turn."""
    given = [1, 2, 1]
    monkeypatch.setattr("fairseq_plugins.attention.base.draw_seed", lambda: given.pop(0))
    return given


def positions_of_layers(model: PETransformerLM, tokens: Tensor) -> list[Tensor]:
    """What each layer's queries are encoded at in one pass."""
    seen: list[Tensor] = []
    for layer in model.decoder.layers:
        encoding = layer.self_attn.attention.encoding
        original = type(encoding).transform_query

        def record(q: Tensor, positions: Tensor, *, encoding=encoding, original=original) -> Tensor:
            seen.append(positions.clone())
            return original(encoding, q, positions)

        encoding.transform_query = record
    with torch.no_grad():
        model(tokens)
    return seen


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_all_layers_have_one_draw_and_the_next_pass_another(attention: str, seeds) -> None:
    model, tokens = build_lm(attention, "randomised_rope").train(), random_tokens(3, 20)
    first, second, again = (positions_of_layers(model, tokens) for _ in range(3))
    assert not seeds, "one seed per pass"
    for index in (*first, *second):
        assert (index.diff(dim=-1) > 0).all()
        assert index.max() < REACH
    assert all(torch.equal(index, first[0]) for index in first)
    assert not torch.equal(first[0], second[0])
    assert torch.equal(again[0], first[0])


@torch.no_grad()
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_evaluation_is_that_of_the_encoding_alone(attention: str) -> None:
    model, plain = build_lm(attention, "randomised_rope"), build_lm(attention, "rope")
    plain.load_state_dict(model.state_dict())
    tokens, state = random_tokens(2, 20), {}
    expected = plain(tokens)[0]
    assert torch.equal(model(tokens)[0], expected)
    steps = [model(tokens[:, : i + 1], incremental_state=state)[0] for i in range(20)]
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_training_is_the_encoding_alone_at_the_draw(seeds) -> None:
    """Absolute positions in the input are drawn with the relative ones in the layers."""
    model = build_lm("vanilla", "randomised_rope").train()
    tokens = random_tokens(1, 12)
    actual = model(tokens)[0]
    position_sampler = model.decoder.position_sampler
    drawn = position_sampler.reposition(torch.arange(12))
    plain = build_lm("vanilla", "rope", max_target_positions=REACH)
    plain.load_state_dict(model.state_dict())
    stack = plain.decoder
    x = stack.embed_scale * stack.embed_tokens(tokens)
    at = with_end(drawn.unsqueeze(0), REACH)
    x = stack.position_embedding.embed(x, at, tokens=tokens)
    for layer in stack.layers:
        given = Positions(at, None, SharedPass())
        x = layer(x.transpose(0, 1), self_attn_padding_mask=given)[0].transpose(0, 1)
    torch.testing.assert_close(actual, stack.output_layer(x), rtol=1e-4, atol=1e-4)


def test_a_learned_table_of_the_range_learns_where_tokens_were(seeds) -> None:
    model = roberta.build(encoding="randomised_learned").train()
    model(roberta.random_tokens(2, 9), features_only=True)[0].square().sum().backward()
    stack = model.encoder.sentence_encoder
    table = stack.position_embedding.weight
    assert table.size(0) == REACH
    drawn = stack.position_sampler.reposition(torch.arange(9))
    assert table.grad.any(1).nonzero().flatten().tolist() == drawn.tolist()
