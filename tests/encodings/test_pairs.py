"""The absolute and relative pairs: a name for two encodings, and nothing else."""

import itertools

import pytest
import torch

from fairseq_plugins.encodings import (
    ENCODINGS,
    Compose,
    EncodingContext,
    PositionEncoding,
    PositionFacts,
    build_encoding,
    build_model_encodings,
    expand_name,
    with_absolute_embedding,
)

ABSOLUTE = ["learned", "learnable_sinusoidal"]
RELATIVE = ["shaw", "sinusoidal_rpe", "learnable_sinusoidal_rpe"]
PAIRS = list(itertools.product(ABSOLUTE, RELATIVE))
CONTEXT = EncodingContext(num_heads=2, head_dim=4, embed_dim=8, max_positions=16)
every_pair = pytest.mark.parametrize(("absolute", "relative"), PAIRS)


def build(name: str, **options) -> PositionEncoding:
    return build_encoding(
        name,
        num_heads=2,
        head_dim=4,
        max_positions=16,
        generator=torch.Generator().manual_seed(3),
        **options,
    )


@every_pair
def test_a_pair_is_its_two_parts(absolute, relative):
    name = f"{absolute}_{relative}"
    assert ENCODINGS[name].parts == (absolute, relative)
    pair, joined = build(name), build(f"{absolute}+{relative}")
    assert isinstance(pair, Compose)
    assert pair.label == name
    assert pair.hooks == ENCODINGS[name].hooks == joined.hooks
    assert pair.hooks == {"embed", "relative_logits", "relative_values"}
    x, at = torch.randn(1, 5, 8), torch.tensor([[0, 1, 2, 9, 15]])
    q, k = torch.randn(2, 1, 2, 5, 4)
    weights = torch.rand(1, 2, 5, 5)
    first, second = pair.encodings
    calls = [
        (lambda e: e.embed(x, at), first),
        (lambda e: e.relative_logits(q, k, at, at), second),
        (lambda e: e.relative_values(weights, at, at), second),
    ]
    for call, part in calls:
        assert torch.equal(call(pair), call(joined))
        assert torch.equal(call(pair), call(part))


@every_pair
def test_only_a_learned_table_ends(absolute, relative):
    encoding, at = build(f"{absolute}_{relative}"), torch.tensor([[16]])
    x = torch.zeros(1, 1, 8)
    extrapolates = PositionFacts.of(encoding).extrapolates
    assert extrapolates == (absolute != "learned")
    if extrapolates:
        assert encoding.embed(x, at).isfinite().all()
    else:
        with pytest.raises(ValueError, match="`positions` must be below max_positions=16"):
            encoding.embed(x, at)


@every_pair
def test_layers_share_both_parts(absolute, relative):
    options = {f"{relative}.max_distance": "5"}
    stack = build_model_encodings(f"{absolute}_{relative}", 3, CONTEXT, options)
    assert [e.label if e is not None else None for e in stack.inputs] == [absolute, None, None]
    assert len({id(e) for e in stack.layers}) == 1
    assert stack.layers[0].label == relative
    assert stack.layers[0].max_distance == 5


@every_pair
def test_a_pair_has_its_own_absolute_embedding(absolute, relative):
    name = f"{absolute}_{relative}"
    assert with_absolute_embedding(name, "base") == name
    assert expand_name(f"base+{name}") == ["base", absolute, relative], "unless it is asked for"
    assert len(build(f"base+{name}").encodings) == 3


@every_pair
def test_options_are_those_of_the_parts(absolute, relative):
    name = f"{absolute}_{relative}"
    option = f"{relative}.max_distance"
    assert ENCODINGS[name].options[option].default == 64
    assert build(name, **{option: 7}).encodings[1].max_distance == 7
    assert build(f"base+{name}", **{option: "7"}).encodings[2].max_distance == 7
    with pytest.raises(ValueError, match=f"`max_distance` must name its encoding .*`{option}`"):
        build(name, max_distance=7)
    with pytest.raises(ValueError, match=r"must be for one of .*but is for 't5'"):
        build(name, **{"t5.num_buckets": 8})


@pytest.mark.parametrize(
    "name", ["shaw+learned_shaw", "learned_shaw+learned", "learned_shaw+learned_sinusoidal_rpe"]
)
def test_a_part_twice_is_refused(name):
    message = "must not name an encoding twice, but is '" + name.replace("+", r"\+")
    with pytest.raises(ValueError, match=message):
        build(name)
