"""Randomised positions: the draw, what the other encodings see of it, and evaluation."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import (
    IncompatibleEncodingError,
    PositionEncoding,
    build_encoding,
    build_model_encodings,
)
from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.position_bounds import known_end, with_end
from fairseq_plugins.encodings.randomised import Randomised, ordered_draw

HEADS, DIM, LONGEST = 2, 8, 16


def build(name: str = "randomised", *, causal: bool = True, **options) -> PositionEncoding:
    return build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        max_positions=LONGEST,
        causal=causal,
        generator=torch.Generator().manual_seed(2),
        **options,
    )


def draw(seed: int, **options) -> Tensor:
    encoding = build(**options)
    assert isinstance(encoding, Randomised)
    encoding.redraw(seed)
    return encoding.reposition(torch.arange(LONGEST))


def count(length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length).unsqueeze(0)


def test_a_draw_is_ordered_without_repetition_and_within_the_range():
    for seed in range(50):
        index = draw(seed, reach=40)
        assert (index.diff() > 0).all()
        assert index[0] >= 0
        assert index[-1] < 40


def test_every_subset_is_as_likely():
    """Of 2 out of 4: six subsets."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(3000):
        generator = torch.Generator().manual_seed(seed)
        pair = tuple(ordered_draw(torch.randn(4, generator=generator), 2).tolist())
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 6
    assert max(abs(c - 500) for c in counts.values()) < 100  # five standard deviations


def test_seeds_differ_and_one_seed_is_one_draw():
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_a_range_as_long_as_the_sequences_changes_nothing():
    assert torch.equal(draw(1, reach=LONGEST), torch.arange(LONGEST))


def test_positions_behind_the_longest_follow_the_range():
    encoding = build(reach=40)
    at = with_end(torch.tensor([15, 16, 17, 30]), 31)
    index = encoding.reposition(at)
    assert index[1:].tolist() == [40, 41, 54]
    assert known_end(index) == 55
    assert known_end(encoding.reposition(with_end(torch.arange(4), 4))) == 40


def scores(encoding: PositionEncoding, x: Tensor, at: Tensor) -> Tensor:
    return encoding.transform_query(x, at) @ encoding.transform_key(x, at).mT


def test_the_others_see_the_draw_in_training_and_positions_in_evaluation():
    x, at, plain = torch.randn(1, HEADS, 6, DIM), count(6), build("rope")
    encoding = build("randomised+rope", **{"randomised.reach": 100})
    position_sampler = encoding.parts[0]
    assert isinstance(position_sampler, Randomised)
    position_sampler.redraw(3)
    drawn = position_sampler.reposition(at)
    torch.testing.assert_close(scores(encoding, x, at), scores(plain, x, drawn))
    torch.testing.assert_close(scores(encoding.eval(), x, at), scores(plain, x, at))


def test_positions_may_be_given_by_name():
    encoding = build("randomised+rope")
    x, at = torch.randn(1, HEADS, 6, DIM), count(6)
    expected = encoding.transform_query(x, at)
    assert torch.equal(encoding.transform_query(x, positions=at), expected)
    bias = build("randomised+alibi")
    expected = bias.attn_bias(at, at)
    assert torch.equal(bias.attn_bias(q_positions=at, k_positions=at), expected)


def test_a_bias_and_a_table_see_it_too():
    at = count(6)
    alibi, placed = build("alibi"), build("randomised+alibi")
    drawn = placed.parts[0].reposition(at)
    torch.testing.assert_close(placed.attn_bias(at, at), alibi.attn_bias(drawn, drawn))
    x, learned = torch.zeros(1, 6, HEADS * DIM), build("randomised_learned")
    table = learned.parts[1].weight
    assert table.shape == (8 * LONGEST, HEADS * DIM), "a row for each position of the range"
    found = learned.embed(x, at)[0]  # which draws anew
    torch.testing.assert_close(found, table[learned.parts[0].reposition(at)[0]])
    torch.testing.assert_close(learned.eval().embed(x, at + 100)[0], table[100:106])


def test_an_attention_draws_for_every_pass_of_training(monkeypatch):
    encoding = build("randomised_rope")
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=True)
    q, k, v = torch.randn(3, 1, HEADS, 9, DIM)
    seeds = iter([1, 2, 1, 3, 4])
    monkeypatch.setattr("fairseq_plugins.attention.base.draw_seed", lambda: next(seeds))

    def run() -> Tensor:
        return attention(q, k, v, q_positions=count(9), k_positions=count(9))[0]

    first, second, again = run(), run(), run()
    assert not torch.allclose(first, second)
    assert torch.equal(first, again)
    attention.eval()
    assert torch.equal(run(), run())


def test_every_part_of_an_attention_sees_the_draw():
    """What it asks of a part by itself, as a bias or a decay, no less than what is transformed."""
    q, k, v = torch.randn(3, 2, HEADS, 9, DIM)
    at = count(9)
    with_options = {"per": {"per.decay": True}, "t5": {"t5.num_buckets": 8}}
    for name in ("rope", "shaw", "alibi", "t5", "kerple_log", "fire", "per"):
        encoding = build(f"randomised+{name}", **with_options.get(name, {}))
        position_sampler, other = encoding.parts
        for kind in ("vanilla", "linear") if name in ("rope", "per") else ("vanilla",):
            sizes = {"num_heads": HEADS, "head_dim": DIM, "causal": True}
            output = build_attention(kind, encoding, **sizes)(
                q, k, v, q_positions=at, k_positions=at
            )[0]
            drawn = position_sampler.reposition(at)
            expected = build_attention(kind, other, **sizes)(
                q, k, v, q_positions=drawn, k_positions=drawn
            )[0]
            torch.testing.assert_close(output, expected, msg=f"{name}, {kind}")


def test_a_stack_has_one_that_draws_and_no_layer_has_another():
    context = EncodingContext(HEADS, DIM, HEADS * DIM, LONGEST, causal=True)
    built = build_model_encodings("randomised+learned+shaw", 3, context, {"randomised.reach": 50})
    assert isinstance(built.position_sampler, Randomised)
    assert built.inputs[0].context.max_positions == 50
    for encoding in (built.inputs[0], *built.layers):
        assert not any(isinstance(part, Randomised) for part in encoding.parts)
    assert build_model_encodings("rope", 3, context, {}).position_sampler is None


@pytest.mark.parametrize("name", ["rspe", "dpe"])
def test_what_compares_positions_with_a_length_is_refused(name):
    with pytest.raises(IncompatibleEncodingError, match=f"'{name}' cannot be combined with"):
        build(f"randomised+{name}", causal=False)


def test_what_finds_cls_by_its_position_is_refused():
    with pytest.raises(IncompatibleEncodingError, match=r"`tupe\.cls_token=tied` would work"):
        build("randomised+tupe", causal=False)
    build("randomised+tupe", causal=False, **{"tupe.cls_token": "tied"})


def test_others_have_room_for_sequences_beyond_the_longest():
    """Position s >= n is L + s - n, for every s that the model is built for."""
    randomised = build(longest=LONGEST // 2)
    assert randomised.reach > randomised.reposition(count(LONGEST)).max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longest": -1}, "`longest` must be positive, .*, but is -1"),
        ({"reach": 15}, "`reach` must be 0 or at least longest=16, but is 15"),
        ({"longest": 20, "reach": 19}, "`reach` must be 0 or at least longest=20, but is 19"),
    ],
)
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_an_embedding_in_plain_pytorch_is_drawn_at_every_pass():
    """Unless a model draws for it; a draw is used once."""
    encoding, x = build("randomised_learned"), torch.zeros(1, 5, HEADS * DIM)
    first, second = (encoding.embed(x, count(5)) for _ in range(2))
    assert not torch.equal(first, second)
    again = []
    for _ in range(2):
        encoding.parts[0].redraw(7)
        again.append(encoding.embed(x, count(5)))
    assert torch.equal(*again)
