"""What an encoding says about itself, gathered for those who ask: linear attention, the catalogue.

A class, or an instance where options decide, says a fact as an attribute of its name, as in
``keeps_norms = False``; what it does not say is the default here. A composition says nothing: it
is what its parts are together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fairseq_plugins.encodings.base import TRANSFORM_HOOKS, PositionEncoding

ENCODED = frozenset({"transform_query", "transform_key"})


@dataclass(frozen=True)
class LinearFacts:
    """What linear attention has to know, and it alone.

    Attributes:
        transform_after_feature_map: transform phi(q) and phi(k) (True: LRPE, Eq. 13, where
            relativity holds after phi), or q and k before phi (False).
        feature_map: the feature map that belongs to the definition, in place of the attention's;
            None where any will do.
        keeps_norms: whether ``transform_query`` and ``transform_key`` keep norms, of which the
            floor of an encoded denominator is made.
        keeps_positive: whether products of encoded features are never negative where the features
            themselves are not; an encoded denominator then needs no floor.
        positive_span: below which distance between positions that is so; None for any.
        sums_cancel: whether sums of products of encoded features are usually far smaller than
            their bound, so that half precision would turn their signs.
    """

    transform_after_feature_map: bool = True
    feature_map: str | None = None
    keeps_norms: bool = True
    keeps_positive: bool = False
    positive_span: int | None = None
    sums_cancel: bool = False

    @classmethod
    def of(cls, encoding: PositionEncoding) -> "LinearFacts":
        """Of an encoding, or of the parts of a composition together.

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
    """What is true of an encoding's positions, for those who check or describe it.

    Attributes:
        is_relative: whether scores depend on positions through their differences alone.
        needs_lengths: whether ``embed`` needs the true lengths of the sequences.
        extrapolates: whether positions beyond ``max_positions`` have a meaning; where not, they
            are refused.
        reads_positions: whether positions as they are passed have any effect; where not, a model
            knows order from the causal mask alone, or counts for itself.
    """

    is_relative: bool = True
    needs_lengths: bool = False
    extrapolates: bool = True
    reads_positions: bool = True

    @classmethod
    def of(cls, encoding: PositionEncoding) -> "PositionFacts":
        """Of an encoding, or of the parts of a composition together."""
        return cls.together([(part.hooks, part) for part in encoding.parts])

    @classmethod
    def together(cls, parts: Sequence[tuple[frozenset[str], Any]]) -> "PositionFacts":
        """Of several encodings or classes, each behind its hooks."""
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
    """The fields that an encoding or a class has as attributes."""
    return {f.name: getattr(part, f.name) for f in fields(value) if hasattr(part, f.name)}
