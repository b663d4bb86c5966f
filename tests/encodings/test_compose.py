"""Compose: transforms chained, biases summed, hooks united, and what cannot go together."""

from typing import ClassVar

import pytest
import torch

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import (
    Compose,
    EncodingContext,
    LinearFacts,
    PositionEncoding,
    PositionFacts,
    build_encoding,
)

CONTEXT = EncodingContext(num_heads=2, head_dim=4, embed_dim=8)
AT = torch.tensor([[0, 1, 4]])


def build(name: str, **options) -> PositionEncoding:
    return build_encoding(name, num_heads=2, head_dim=4, **options)


class BeforeFeatureMap(PositionEncoding):
    """Transforms q and k before phi, as a stochastic encoding does."""

    transform_after_feature_map: ClassVar[bool] = False

    def transform_query(self, q, positions):
        return 2 * q


class Rescaled(PositionEncoding):
    """Another factor on the logits, as in DeBERTa."""

    def __init__(self, context: EncodingContext, scale: float) -> None:
        super().__init__(context)
        self.scale = scale

    def logit_scale(self) -> float:
        return self.scale


def test_transforms_are_chained_in_order():
    first, second = build("lrpe_type1"), build("lrpe_type7")
    q = torch.randn(2, 2, 3, 4)
    both = Compose([first, second])
    for hook in ("transform_query", "transform_key"):
        expected = getattr(second, hook)(getattr(first, hook)(q, AT), AT)
        assert torch.equal(getattr(both, hook)(q, AT), expected)


def test_biases_and_content_terms_are_summed():
    parts = [build("alibi"), build("t5"), build("shaw"), build("shaw_keys")]
    both = Compose(parts)
    q, k = torch.randn(2, 2, 2, 3, 4)
    bias = parts[0].attn_bias(AT, AT) + parts[1].attn_bias(AT, AT)
    torch.testing.assert_close(both.attn_bias(AT, AT), bias)
    logits = sum(p.relative_logits(q, k, AT, AT) for p in parts[2:])
    torch.testing.assert_close(both.relative_logits(q, k, AT, AT), logits)
    weights = torch.rand(2, 2, 3, 3)
    expected = parts[2].relative_values(weights, AT, AT)
    torch.testing.assert_close(both.relative_values(weights, AT, AT), expected)
    assert both.hooks == {"attn_bias", "relative_logits", "relative_values"}


def test_absolute_parts_are_added():
    x, parts = torch.randn(1, 3, 8), [build("sinusoidal"), build("learned")]
    expected = x + parts[0].rows(AT) + parts[1].rows(AT)
    torch.testing.assert_close(Compose(parts).embed(x, AT), expected)


def test_one_alone_is_itself():
    q, rope = torch.randn(1, 2, 3, 4), build("rope")
    alone = Compose([rope])
    assert alone.hooks == rope.hooks
    assert torch.equal(alone.transform_query(q, AT), rope.transform_query(q, AT))
    assert alone.encoded_dim == 4
    assert alone.logit_scale() == rope.logit_scale()


def test_a_doubled_width_must_come_last():
    q = torch.randn(1, 2, 3, 4)
    last = Compose([build("rope"), build("lrpe_type8")])
    assert last.encoded_dim == 8
    assert last.transform_query(q, AT).size(-1) == 8
    with pytest.raises(ValueError, match=r"lrpe_type8 must be the last .*8 features .*head_dim=4"):
        Compose([build("lrpe_type8"), build("rope")])


def test_an_empty_composition_is_refused():
    with pytest.raises(ValueError, match="`encodings` must hold at least one"):
        Compose([])


def test_parts_of_different_shape_are_refused():
    with pytest.raises(ValueError, match=r"`encodings` must agree on \(num_heads, head_dim\)"):
        Compose([build("rope"), build_encoding("rope", num_heads=4, head_dim=4)])


def test_transforms_on_both_sides_of_the_feature_map_are_refused():
    before = BeforeFeatureMap(CONTEXT)
    assert not LinearFacts.of(Compose([before, build("t5")])).transform_after_feature_map
    assert LinearFacts.of(Compose([build("rope"), build("t5")])).transform_after_feature_map
    with pytest.raises(ValueError, match="mixes transforms before and after the feature map"):
        Compose([before, build("rope")])


def test_two_different_logit_scales_are_refused():
    assert Compose([build("t5"), Rescaled(CONTEXT, 0.25)]).logit_scale() == 0.25
    with pytest.raises(ValueError, match=r"mixes the logit scales \[0.125, 0.25\]"):
        Compose([Rescaled(CONTEXT, 0.25), Rescaled(CONTEXT, 0.125)])


def test_a_refusal_of_causal_models_is_inherited():
    part = Rescaled(CONTEXT, 0.25)
    part.causal_refusal = "it reads the length"
    assert Compose([build("rope"), part]).causal_refusal == "it reads the length"
    assert Compose([build("rope")]).causal_refusal is None


def test_two_transforms_are_not_relative():
    """They need not commute, so that scores depend on more than differences."""
    assert not PositionFacts.of(Compose([build("rope"), build("per")])).is_relative
    assert PositionFacts.of(Compose([build("rope"), build("t5")])).is_relative


def test_a_sampled_scale_is_not_applied_to_other_logits():
    with pytest.raises(ValueError, match="`num_realizations` of spe must be head_dim=4"):
        Compose([build("spe", num_realizations=8), build("shaw_keys")])
    Compose([build("spe", num_realizations=4), build("shaw_keys")])


def test_nothing_of_an_encoding_is_forgotten():
    """What a class may say or override is answered by a composition, and not by the defaults."""
    whole = Compose([build("alibi"), build("rope")])
    answered = vars(Compose).keys() | vars(whole).keys()
    public = {name for name in vars(PositionEncoding) if not name.startswith("_")}
    assert not public - answered


def test_what_is_shared_or_bound_reaches_every_part():
    first, second = (Compose([build("xl"), build("deberta")]) for _ in range(2))
    second.share_with(first)
    assert second.encodings[0].u is first.encodings[0].u
    assert second.encodings[1].table is first.encodings[1].table
    projections = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    first.bind_projections(*projections)
    assert first.encodings[1]._bound == projections


def test_the_layers_of_an_embedding_are_its_parts():
    assert build("deberta_emd+rope").embed_layers(6) == {4, 5}
    assert build("shaw+rope").embed_layers(6) == {0}
    with pytest.raises(ValueError, match=r"learned\+deberta_emd must embed in the same layers"):
        build("learned+deberta_emd").embed_layers(6)


def test_compositions_within_compositions_are_their_parts():
    inner = Compose([build("rope"), build("alibi")])
    outer = Compose([inner, build("t5")])
    assert [part.label for part in outer.parts] == ["rope", "alibi", "t5"]
    expected = inner.encodings[1].attn_bias(AT, AT) + outer.encodings[1].attn_bias(AT, AT)
    assert torch.equal(outer.attn_bias(AT, AT), expected)


@pytest.mark.parametrize(
    ("name", "folds"),
    [
        ("lrpe_type2+alibi", True),
        ("learned+lrpe_type3+t5", True),
        ("lrpe_type1+rope", True),
        ("rope+lrpe_type1", False),
        ("lrpe_type1+shaw", False),
        ("deberta+lrpe_type1", False),
        ("rope+alibi", False),
    ],
)
def test_a_basis_is_folded_where_nothing_else_reads_what_it_changes(name, folds):
    """The first transform alone meets queries and keys as the projections make them."""
    torch.manual_seed(5)
    encoding = build(name, causal=True)
    projections = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    encoding.bind_projections(*projections)
    attention = build_attention("vanilla", encoding, num_heads=2, head_dim=4, causal=True)
    before = [p.weight.detach().clone() for p in projections]
    x, v = torch.randn(2, 5, 8), torch.randn(2, 2, 5, 4)
    at = torch.arange(5).unsqueeze(0)

    def output() -> torch.Tensor:
        q, k = (p(x).unflatten(-1, (2, 4)).transpose(1, 2) for p in projections)
        result: torch.Tensor = attention(q, k, v, q_positions=at, k_positions=at)[0]
        return result

    expected = output()
    attention.fold_basis_(*projections)
    assert torch.equal(projections[0].weight, before[0]) != folds
    torch.testing.assert_close(output(), expected)
    attention.unfold_basis_(*projections)
    for projection, weight in zip(projections, before, strict=True):
        torch.testing.assert_close(projection.weight, weight)
    torch.testing.assert_close(output(), expected)
