"""Compose: transforms chained, biases summed, hooks united, and what cannot go together."""

from typing import ClassVar

import pytest
import torch

from fairseq_plugins.encodings import (
    Compose,
    EncodingContext,
    PositionEncoding,
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
    assert not Compose([before, build("t5")]).transform_after_feature_map
    assert Compose([build("rope"), build("t5")]).transform_after_feature_map
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
    assert not Compose([build("rope"), build("per")]).is_relative
    assert Compose([build("rope"), build("t5")]).is_relative


def test_a_sampled_scale_is_not_applied_to_other_logits():
    with pytest.raises(ValueError, match="spe scales by its own number of features"):
        Compose([build("spe", num_realizations=8), build("shaw_keys")])
    Compose([build("spe", num_realizations=4), build("shaw_keys")])
