"""The one abstraction: a position encoding overrides only the hooks that its paper defines.

Shapes: B batch, H heads, T queries, S keys, D head_dim, D' encoded head_dim, C embed_dim.
Positions are 0-based int64 of shape (B or 1, T).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

TRANSFORM_HOOKS = frozenset(
    {"transform_query", "transform_key", "transform_value", "transform_output", "log_decay"}
)
LOGIT_HOOKS = frozenset({"attn_bias", "relative_logits", "relative_values"})
ALL_HOOKS = TRANSFORM_HOOKS | LOGIT_HOOKS | {"embed"}


class IncompatibleEncodingError(ValueError):
    """An encoding and an attention (or direction) that cannot go together, with the reason."""


@dataclass(frozen=True)
class EncodingContext:
    """What a model tells an encoding about itself.

    Attributes:
        num_heads: attention heads H.
        head_dim: features per head D.
        embed_dim: model width C; ``num_heads * head_dim`` where a caller does not say.
        max_positions: longest sequence that the model is built for.
        causal: whether a query sees only keys at or before its own position.
        vocab_size: symbols of the dictionary, for an encoding with a parameter per word; None
            where a caller does not say.
        begins_with_cls: whether the first token of a bidirectional model's sequences is [CLS], as
            RoBERTa's <s>, and not a word, as a translation model's.
        generator: source of the random draws of fixed parameters; None is torch's global one.
    """

    num_heads: int
    head_dim: int
    embed_dim: int
    max_positions: int = 1024
    causal: bool = False
    vocab_size: int | None = None
    begins_with_cls: bool = True
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        names = ["num_heads", "head_dim", "embed_dim", "max_positions"]
        for name in names if self.vocab_size is None else [*names, "vocab_size"]:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer, but is {value!r} instead.")


class PositionEncoding(nn.Module):
    """Base class. A subclass overrides some of the nine hooks; the rest are the identity or zero.

    Class attributes say what the model has to know before it is built:
        transform_after_feature_map: under linear attention, transform phi(q) and phi(k) (True:
            LRPE, Eq. 13, where relativity holds after phi) or q and k before phi (False).
        shared_across_layers: one instance for the whole model instead of one per layer.
        keeps_absolute_embedding: whether the framework's absolute embedding stays on beside it,
            as in the LRPE paper, or is replaced by it.
        causal_refusal: why a causal model cannot have it; None where it can.
        bidirectional_refusal: why bidirectional and cross-attention cannot; None where they can.
        needs_lengths: whether ``embed`` needs the true lengths of the sequences.
        extrapolates: whether positions beyond ``max_positions`` have a meaning; where not, they
            are refused.
        is_relative: whether scores depend on positions through their differences alone.
        keeps_norms: whether ``transform_query`` and ``transform_key`` keep norms, of which linear
            attention makes the floor of an encoded denominator.
        is_stochastic: whether its values are drawn; see ``redraw``.
        embed_window: how many tokens, up to its own, ``embed`` looks at in a causal model.
        feature_map: the feature map of linear attention that belongs to its definition, in place
            of the attention's; None where any will do.
        keeps_positive: whether products of encoded features are never negative where the
            features themselves are not; linear attention then needs no floor under an encoded
            denominator.
        positive_span: below which distance between positions that is so; None for any.

    Parameters and tables stay in float32 when the model is cast to half precision: a position
    beyond 256 is not representable in bfloat16. They are cast where they are used.
    """

    transform_after_feature_map: ClassVar[bool] = True
    shared_across_layers: ClassVar[bool] = False
    keeps_absolute_embedding: ClassVar[bool] = True
    causal_refusal: str | None = None
    bidirectional_refusal: str | None = None
    needs_lengths: bool = False
    extrapolates: bool = True
    is_relative: bool = True
    keeps_norms: bool = True
    is_stochastic: bool = False
    embed_window: int = 1
    feature_map: str | None = None
    keeps_positive: bool = False
    positive_span: int | None = None

    def __init__(self, context: EncodingContext) -> None:
        super().__init__()
        self.context = context
        self.label = type(self).__name__

    @property
    def hooks(self) -> frozenset[str]:
        """The names of the hooks that this encoding overrides."""
        return overridden_hooks(type(self))

    def embed(
        self,
        x: Tensor,
        positions: Tensor,
        *,
        lengths: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Put absolute positions into token embeddings: (B, T, C) -> (B, T, C).

        ``lengths`` (B,) int64 are the true lengths, ``tokens`` (B, T) the token ids, for the
        encodings that are defined by them.
        """
        return x

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Encode queries: (B, H, T, D) -> (B, H, T, D')."""
        return q

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Encode keys: (B, H, S, D) -> (B, H, S, D')."""
        return k

    def transform_value(self, v: Tensor, positions: Tensor) -> Tensor:
        """Encode values: (B, H, S, D) -> (B, H, S, D)."""
        return v

    def transform_output(self, output: Tensor, positions: Tensor) -> Tensor:
        """Decode what a query gathered from encoded values: (B, H, T, D) -> (B, H, T, D)."""
        return output

    def log_decay(self) -> Tensor:
        """log r <= 0 (H,) float32: q.k is multiplied by r^(s - t), for a causal attention only."""
        raise NotImplementedError

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """A bias (B or 1, H, T, S) added to the logits after scaling."""
        raise NotImplementedError

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """A content-dependent term (B, H, T, S) added to q.k before scaling.

        ``q`` (B, H, T, D) and ``k`` (B, H, S, D) come before ``transform_query`` and
        ``transform_key``.
        """
        raise NotImplementedError

    def relative_values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """A position-dependent addition (B, H, T, D) to the output, given weights (B, H, T, S)."""
        raise NotImplementedError

    @property
    def encoded_dim(self) -> int:
        """D', the features of transformed queries and keys."""
        return self.context.head_dim

    def logit_scale(self) -> float:
        """The factor on q.k + relative_logits; 1/sqrt(head_dim), whatever D' is."""
        return float(self.context.head_dim**-0.5)

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        """The layers whose input ``embed`` acts on; layer 0's are the token embeddings."""
        return frozenset({0})

    def share_with(self, first: "PositionEncoding") -> None:
        """Take over the parameters of the first layer's instance that all layers share."""

    def expected_scores(self, offset: int) -> Tensor:
        """W_{t-s} (H, D, D) with E[q~.k~] = q^T W k of a stochastic encoding, t - s = ``offset``.

        Raises:
            NotImplementedError: the encoding is not stochastic, or not relative on average.
        """
        raise NotImplementedError

    def parts_with(self, hook: str) -> list["PositionEncoding"]:
        """The encodings within this one, or itself, that override a hook."""
        return [self] if hook in self.hooks else []

    def bind_projections(self, q_proj: nn.Module, k_proj: nn.Module) -> None:
        """Get to know the layer's own projections (C -> C), for encodings that use them too."""

    def fold_basis_(self, *projections: nn.Module) -> None:
        """Move into the weights of ``projections`` (C -> C) what is done to queries and keys alike
        at every position, and do it no more: for inference, where nothing stands between.
        """

    def unfold_basis_(self, *projections: nn.Module) -> None:
        """Take it out of their weights again, and do it as before."""

    def redraw(self, seed: int | Tensor) -> None:
        """Fix the noise of a stochastic encoding: one seed, one draw, at all positions.

        An attention calls this before every forward pass, and again with the same seed in the
        steps of one decoding. In a compiled graph the seed is in a tensor () int64.
        """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def keep_float32(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            half = (torch.float16, torch.bfloat16)
            return tensor.to(moved.device) if moved.dtype in half else moved

        return super()._apply(keep_float32, recurse)


def overridden_hooks(cls: type[PositionEncoding]) -> frozenset[str]:
    """The names of the hooks that a class overrides."""
    base = PositionEncoding
    return frozenset(h for h in ALL_HOOKS if getattr(cls, h) is not getattr(base, h))


def relative_positions(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """``k_positions - q_positions``: (B or 1, T), (B or 1, S) -> (B or 1, T, S)."""
    return k_positions.unsqueeze(-2) - q_positions.unsqueeze(-1)


class Compose(PositionEncoding):
    """Several encodings as one: transforms are chained, biases summed, hooks united.

    Args:
        encodings: at least one encoding, all built with the same context.

    Raises:
        ValueError: for an empty list, different contexts, transforms of which some act before
            and some after the feature map, a transform after one that changed head_dim, or more
            than one logit scale.
    """

    def __init__(self, encodings: list[PositionEncoding]) -> None:
        if not encodings:
            raise ValueError("`encodings` must hold at least one encoding, but is empty.")
        super().__init__(encodings[0].context)
        shapes = {(e.context.num_heads, e.context.head_dim) for e in encodings}
        if len(shapes) > 1:
            raise ValueError(f"`encodings` must agree on (num_heads, head_dim), but have {shapes}.")
        self.encodings = nn.ModuleList(encodings)
        self.label = "+".join(e.label for e in encodings)
        # Which parts override a hook is asked at every pass, and does not change.
        self._with_hook = {
            hook: [i for i, e in enumerate(encodings) if hook in e.hooks] for hook in ALL_HOOKS
        }
        orders = {e.transform_after_feature_map for e in encodings if e.hooks & TRANSFORM_HOOKS}
        if len(orders) > 1:
            raise ValueError(f"{self.label} mixes transforms before and after the feature map.")
        self.transform_after_feature_map = orders.pop() if orders else True  # type: ignore[misc]
        for part in self.parts_with("transform_query")[:-1]:
            if part.encoded_dim != part.context.head_dim:
                raise ValueError(
                    f"{part.label} must be the last transform of {self.label}: it makes "
                    f"{part.encoded_dim} features out of head_dim={part.context.head_dim}."
                )
        self._unite(encodings)
        default = PositionEncoding.logit_scale(self)
        scales = {e.logit_scale() for e in encodings} - {default}
        if len(scales) > 1:
            raise ValueError(f"{self.label} mixes the logit scales {sorted(scales)}.")
        self._scale = scales.pop() if scales else default
        sampled = [e for e in encodings if e.is_stochastic and e.logit_scale() != default]
        if sampled and self.parts_with("relative_logits"):
            raise ValueError(
                f"{self.label}: {sampled[0].label} scales by its own number of features, which "
                "would scale the other's logits too; with as many as head_dim="
                f"{self.context.head_dim} they go together."
            )

    def _unite(self, encodings: list[PositionEncoding]) -> None:
        """What the parts say about themselves, for the whole."""
        for name in ("causal_refusal", "bidirectional_refusal"):
            reasons = [r for e in encodings if (r := getattr(e, name))]
            setattr(self, name, reasons[0] if reasons else None)
        self.needs_lengths = any(e.needs_lengths for e in encodings)
        self.extrapolates = all(e.extrapolates for e in encodings)
        self.keeps_norms = all(e.keeps_norms for e in encodings)
        self.is_stochastic = any(e.is_stochastic for e in encodings)
        transforms = [e for e in encodings if e.hooks & {"transform_query", "transform_key"}]
        self.keeps_positive = all(e.keeps_positive for e in transforms)
        spans = [e.positive_span for e in transforms if e.positive_span is not None]
        self.positive_span = min(spans, default=None)
        # Two transforms need not commute: q R_s^T P_s^T P_t R_t k then depends on s and t.
        self.is_relative = all(e.is_relative for e in encodings) and len(transforms) <= 1
        self.embed_window = max(e.embed_window for e in encodings)
        if sum("log_decay" in e.hooks for e in encodings) > 1:
            raise ValueError(f"{self.label} has more than one decay.")
        maps = {e.feature_map for e in encodings} - {None}
        if len(maps) > 1:
            raise ValueError(f"{self.label} mixes the feature maps {sorted(map(str, maps))}.")
        self.feature_map = maps.pop() if maps else None

    @property
    def hooks(self) -> frozenset[str]:
        """The union of the parts' hooks."""
        return frozenset(hook for hook, parts in self._with_hook.items() if parts)

    def _parts(self) -> list[PositionEncoding]:
        return [e for e in self.encodings if isinstance(e, PositionEncoding)]

    def parts_with(self, hook: str) -> list[PositionEncoding]:
        parts = self._parts()
        return [parts[i] for i in self._with_hook[hook]]

    def embed(
        self,
        x: Tensor,
        positions: Tensor,
        *,
        lengths: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        for part in self.parts_with("embed"):
            x = part.embed(x, positions, lengths=lengths, tokens=tokens)
        return x

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        for part in self.parts_with("transform_query"):
            q = part.transform_query(q, positions)
        return q

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        for part in self.parts_with("transform_key"):
            k = part.transform_key(k, positions)
        return k

    def transform_value(self, v: Tensor, positions: Tensor) -> Tensor:
        for part in self.parts_with("transform_value"):
            v = part.transform_value(v, positions)
        return v

    def transform_output(self, output: Tensor, positions: Tensor) -> Tensor:
        for part in reversed(self.parts_with("transform_output")):
            output = part.transform_output(output, positions)
        return output

    def log_decay(self) -> Tensor:
        (part,) = self.parts_with("log_decay")
        return part.log_decay()

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        biases = (p.attn_bias(q_positions, k_positions) for p in self.parts_with("attn_bias"))
        return sum(biases, torch.zeros((), device=q_positions.device))

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        parts = self.parts_with("relative_logits")
        terms = (p.relative_logits(q, k, q_positions, k_positions) for p in parts)
        return sum(terms, q.new_zeros(()))

    def relative_values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        parts = self.parts_with("relative_values")
        terms = (p.relative_values(weights, q_positions, k_positions) for p in parts)
        return sum(terms, weights.new_zeros(()))

    @property
    def encoded_dim(self) -> int:
        parts = self.parts_with("transform_query")
        return parts[-1].encoded_dim if parts else self.context.head_dim

    def logit_scale(self) -> float:
        return self._scale

    def bind_projections(self, q_proj: nn.Module, k_proj: nn.Module) -> None:
        for part in self._parts():
            part.bind_projections(q_proj, k_proj)

    def redraw(self, seed: int | Tensor) -> None:
        for part in self._parts():
            part.redraw(seed)
