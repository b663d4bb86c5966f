"""Composition of several encodings into one."""

import operator
from collections.abc import Callable, Iterable
from functools import reduce, wraps
from typing import Any

from torch import Tensor, nn

from fairseq_plugins.encodings.base import (
    ALL_HOOKS,
    IncompatibleEncodingError,
    PositionEncoding,
    Projection,
    overridden_hooks,
)
from fairseq_plugins.encodings.properties import LinearFacts, PositionFacts
from fairseq_plugins.encodings.protocols import Repositions, Stochastic

_POSITIONS = frozenset({"positions", "q_positions", "k_positions"})


def _chained(hook: str, *, backwards: bool = False) -> Callable[..., Any]:
    """Make a hook that passes the result of each part to the next part's hook."""

    def call(composition: "Compose", x: Tensor, *args: Any, **options: Any) -> Tensor:
        parts = composition.parts_with(hook)
        if hook == "embed":
            composition.begin_pass()
        args, options = composition.with_sampled_positions(args, options)
        for part in reversed(parts) if backwards else parts:
            x = getattr(part, hook)(x, *args, **options)
        return x

    return wraps(getattr(PositionEncoding, hook))(call)


def _summed(hook: str) -> Callable[..., Any]:
    """Make a hook that adds the results of the parts' hooks."""

    def call(composition: "Compose", *args: Any, **options: Any) -> Tensor:
        args, options = composition.with_sampled_positions(args, options)
        terms = (getattr(part, hook)(*args, **options) for part in composition.parts_with(hook))
        return reduce(operator.add, terms)

    return wraps(getattr(PositionEncoding, hook))(call)


class Compose(PositionEncoding):
    """Several encodings as one: transforms are chained, and the results of other hooks summed.

    Args:
        encodings: at least one encoding, all built with the same context.

    Raises:
        ValueError: an empty list, different contexts, transforms both before and after the
            feature map, a transform after one that changes head_dim, more than one decay, feature
            map or logit scale, or randomised positions with an encoding that needs lengths.
    """

    embed = _chained("embed")
    transform_query = _chained("transform_query")
    transform_key = _chained("transform_key")
    transform_value = _chained("transform_value")
    transform_output = _chained("transform_output", backwards=True)
    log_decay = _summed("log_decay")
    attn_bias = _summed("attn_bias")
    relative_logits = _summed("relative_logits")
    relative_values = _summed("relative_values")

    def __init__(self, encodings: list[PositionEncoding]) -> None:
        if not encodings:
            raise ValueError("`encodings` must hold at least one encoding, but is empty.")
        super().__init__(encodings[0].context)
        shapes = {(e.context.num_heads, e.context.head_dim) for e in encodings}
        if len(shapes) > 1:
            raise ValueError(f"`encodings` must agree on (num_heads, head_dim), but have {shapes}.")
        self.encodings = nn.ModuleList(encodings)
        self.label = "+".join(e.label for e in encodings)
        # Computed once, since every pass asks which parts override a hook.
        self._with_hook = {
            hook: [i for i, part in enumerate(self.parts) if hook in part.hooks]
            for hook in ALL_HOOKS
        }
        self.causal_refusal = next(filter(None, (e.causal_refusal for e in encodings)), None)
        refusals = (e.bidirectional_refusal for e in encodings)
        self.bidirectional_refusal = next(filter(None, refusals), None)
        self.shared_across_layers = all(e.shared_across_layers for e in encodings)
        self.keeps_absolute_embedding = all(e.keeps_absolute_embedding for e in encodings)
        self.embed_window = max(e.embed_window for e in encodings)
        self._position_sampler = find_position_sampler(encodings)
        LinearFacts.of(self)  # raises an error for parts that contradict each other
        if len(self.parts_with("log_decay")) > 1:
            raise ValueError(f"{self.label} has more than one decay.")
        for part in self.parts_with("transform_query")[:-1]:
            if part.encoded_dim != part.context.head_dim:
                raise ValueError(
                    f"{part.label} must be the last transform of {self.label}: it makes "
                    f"{part.encoded_dim} features out of head_dim={part.context.head_dim}."
                )
        self._scale = self._common_scale()

    def _common_scale(self) -> float:
        """Return the one scale of the parts that is not the default, else the default.

        Raises:
            ValueError: several such scales, or one that would change another part's logits.
        """
        default = PositionEncoding.logit_scale(self)
        scaled = [part for part in self.parts if part.logit_scale() != default]
        scales = {part.logit_scale() for part in scaled}
        if len(scales) > 1:
            raise ValueError(f"{self.label} mixes the logit scales {sorted(scales)}.")
        sampled = [part for part in scaled if isinstance(part, Stochastic)]
        if sampled and self.parts_with("relative_logits"):
            raise ValueError(
                f"`num_realizations` of {sampled[0].label} must be head_dim="
                f"{self.context.head_dim} in {self.label}, whose other logits its scale would "
                "change too."
            )
        return scales.pop() if scales else default

    @property
    def hooks(self) -> frozenset[str]:
        """The union of the parts' hooks."""
        return frozenset(hook for hook, parts in self._with_hook.items() if parts)

    @property
    def parts(self) -> tuple[PositionEncoding, ...]:
        encodings = (e for e in self.encodings if isinstance(e, PositionEncoding))
        return tuple(part for encoding in encodings for part in encoding.parts)

    def parts_with(self, hook: str) -> list[PositionEncoding]:
        parts = self.parts
        return [parts[i] for i in self._with_hook[hook]]

    def begin_pass(self) -> None:
        """Draw new positions in training if a part samples positions and has not drawn them yet."""
        if self._position_sampler is not None and self.training:
            self._position_sampler.begin_pass()

    def sampled(self, positions: Tensor) -> Tensor:
        """Return the positions that the parts see; in training, a part may sample them."""
        if self._position_sampler is None or not self.training:
            return positions
        return self._position_sampler.reposition(positions)

    def with_sampled_positions(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace positions in a hook's arguments by sampled ones in training."""
        # Of the positional arguments only positions are integers.
        sampled = tuple(a if a.is_floating_point() else self.sampled(a) for a in args)
        return sampled, {k: self.sampled(a) if k in _POSITIONS else a for k, a in options.items()}

    @property
    def encoded_dim(self) -> int:
        parts = self.parts_with("transform_query")
        return parts[-1].encoded_dim if parts else self.context.head_dim

    def logit_scale(self) -> float:
        return self._scale

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        """Return the layers of the parts that embed.

        Raises:
            ValueError: the parts embed in different layers, which only a stack supports
                (``build_model_encodings``).
        """
        layers = {part.embed_layers(num_layers) for part in self.parts_with("embed")}
        if len(layers) > 1:
            raise ValueError(
                f"the parts of {self.label} must embed in the same layers here, but embed in "
                f"{sorted(map(sorted, layers))}; `build_model_encodings` supports that."
            )
        return layers.pop() if layers else super().embed_layers(num_layers)

    def share_with(self, first: PositionEncoding) -> None:
        for part, other in zip(self.parts, first.parts, strict=True):
            part.share_with(other)

    def bind_projections(self, q_proj: Projection, k_proj: Projection) -> None:
        for part in self.parts:
            part.bind_projections(q_proj, k_proj)


assert overridden_hooks(Compose) == ALL_HOOKS


def find_position_sampler(encodings: Iterable[PositionEncoding]) -> Repositions | None:
    """Return the encoding that samples positions for the others, or None.

    Raises:
        IncompatibleEncodingError: another encoding needs lengths, which sampled positions exceed,
            neighbours, which it tells by consecutive positions, or [CLS] at position 0.
    """
    parts = list(encodings)
    position_sampler = next((part for part in parts if isinstance(part, Repositions)), None)
    if position_sampler is None:
        return None
    for part in parts:
        reason = ""
        if PositionFacts.of(part).needs_lengths:
            reason = (
                "it needs the lengths of the sequences, which drawn positions exceed. An encoding "
                "of positions alone would work."
            )
        elif part.embed_window > 1:
            reason = "it tells neighbours by consecutive positions, which drawn positions are not."
        elif getattr(part, "untied", False):
            reason = (
                "it finds [CLS] at position 0, which drawn positions rarely have; "
                f"`{part.label}.cls_token=tied` would work."
            )
        if reason:
            raise IncompatibleEncodingError(
                f"the encoding {part.label!r} cannot be combined with {position_sampler.label!r}: "
                f"{reason}"
            )
    return position_sampler
