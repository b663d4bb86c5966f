"""Properties of encodings that linear attention and the catalogue need.

A class declares a property as an attribute, such as ``keeps_norms = False``; an instance does where
its options decide. The defaults are here. Those of a composition follow from its parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fairseq_plugins.encodings.base import TRANSFORM_HOOKS, PositionEncoding

ENCODED = frozenset({"transform_query", "transform_key"})


@dataclass(frozen=True)
class LinearFacts:
    """Properties that linear attention needs.

    Attributes:
        transform_after_feature_map: whether phi(q) and phi(k) are transformed (LRPE, Eq. 13, with
            scores relative after phi), instead of q and k before phi.
        feature_map: the feature map that the encoding's definition prescribes; None for any.
        keeps_norms: whether ``transform_query`` and ``transform_key`` keep norms, from which the
            lower bound of an encoded denominator is computed.
        keeps_positive: whether non-negative features have non-negative products after encoding;
            an encoded denominator then needs no lower bound.
        positive_span: the distance between positions below which ``keeps_positive`` holds; None
            for any.
        sums_cancel: whether sums of products of encoded features are usually far smaller than
            their bound, so that half precision would get their signs wrong.
    """

    transform_after_feature_map: bool = True
    feature_map: str | None = None
    keeps_norms: bool = True
    keeps_positive: bool = False
    positive_span: int | None = None
    sums_cancel: bool = False

    @classmethod
    def of(cls, encoding: PositionEncoding) -> "LinearFacts":
        """Collect the properties of an encoding, or combine those of a composition's parts.

        Raises:
            ValueError: parts of which some transform before and some after the feature map, or
                with more than one feature map.
        """
        parts = [(part.hooks, cls(**_declared(cls, part))) for part in encoding.parts]
        facts = [f for _, f in parts]
        if len(facts) == 1:
            return facts[0]
        orders = {f.transform_after_feature_map for hooks, f in parts if hooks & TRANSFORM_HOOKS}
        if len(orders) > 1:
            raise ValueError(f"{encoding.label} mixes transforms before and after the feature map.")
        maps = {f.feature_map for f in facts if f.feature_map is not None}
        if len(maps) > 1:
            raise ValueError(f"{encoding.label} mixes the feature maps {sorted(maps)}.")
        encoded = [f for hooks, f in parts if hooks & ENCODED]
        return cls(
            transform_after_feature_map=all(orders),
            feature_map=next(iter(maps), None),
            keeps_norms=all(f.keeps_norms for f in facts),
            keeps_positive=all(f.keeps_positive for f in encoded),
            positive_span=min((f.positive_span for f in encoded if f.positive_span), default=None),
            sums_cancel=any(f.sums_cancel for f in encoded),
        )


@dataclass(frozen=True)
class PositionFacts:
    """Properties of an encoding's use of positions.

    Attributes:
        is_relative: whether scores depend on positions through their differences alone.
        needs_lengths: whether ``embed`` needs the lengths of the sequences without padding.
        extrapolates: whether positions beyond ``max_positions`` are supported; if not, they raise
            an error.
        reads_positions: whether the positions passed have any effect; if not, the causal mask
            gives the order, or the encoding counts tokens.
    """

    is_relative: bool = True
    needs_lengths: bool = False
    extrapolates: bool = True
    reads_positions: bool = True

    @classmethod
    def of(cls, encoding: PositionEncoding) -> "PositionFacts":
        """Collect the properties of an encoding, or combine those of a composition's parts."""
        return cls.combined([(part.hooks, part) for part in encoding.parts])

    @classmethod
    def combined(cls, parts: Sequence[tuple[frozenset[str], Any]]) -> "PositionFacts":
        """Combine the properties of several encodings or classes, each paired with its hooks."""
        facts = [cls(**_declared(cls, part)) for _, part in parts]
        # Two transforms need not commute: q R_s^T P_s^T P_t R_t k then depends on s and t.
        encoded = sum(bool(hooks & ENCODED) for hooks, _ in parts)
        return cls(
            is_relative=all(f.is_relative for f in facts) and encoded <= 1,
            needs_lengths=any(f.needs_lengths for f in facts),
            extrapolates=all(f.extrapolates for f in facts),
            reads_positions=any(f.reads_positions for f in facts),
        )


def _declared(value: type[LinearFacts] | type[PositionFacts], part: Any) -> dict[str, Any]:
    """Return the fields that an encoding or a class declares as attributes."""
    return {f.name: getattr(part, f.name) for f in fields(value) if hasattr(part, f.name)}
