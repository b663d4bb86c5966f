"""The one abstraction: a position encoding overrides only the hooks that its paper defines.

Shapes: B batch, H heads, T queries, S keys, D head_dim, D' encoded head_dim, C embed_dim.
Positions are 0-based int64 of shape (B or 1, T).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

TRANSFORM_HOOKS = frozenset(
    {"transform_query", "transform_key", "transform_value", "transform_output", "log_decay"}
)
LOGIT_HOOKS = frozenset({"attn_bias", "relative_logits", "relative_values"})
ALL_HOOKS = TRANSFORM_HOOKS | LOGIT_HOOKS | {"embed"}
Projection = Callable[[Tensor], Tensor]
_HALVES = (torch.float16, torch.bfloat16)

_DECAY_REFUSAL = (
    "its hook `log_decay` weakens keys by their distance before the query, and has no meaning for "
    "keys after it"
)


class IncompatibleEncodingError(ValueError):
    """An encoding and an attention (or direction) that cannot go together, with the reason.

    Attributes:
        reason: in short, without names and without what would work instead; the message where
            nothing shorter is known.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


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
        token_std: standard deviation of the token embeddings at the start, where the model does
            not multiply them by sqrt(C); None where it does, or where a caller does not say.
        generator: source of the random draws of fixed parameters; None is torch's global one.
    """

    num_heads: int
    head_dim: int
    embed_dim: int
    max_positions: int = 1024
    causal: bool = False
    vocab_size: int | None = None
    begins_with_cls: bool = True
    token_std: float | None = None
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        names = ["num_heads", "head_dim", "embed_dim", "max_positions"]
        for name in names if self.vocab_size is None else [*names, "vocab_size"]:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer, but is {value!r} instead.")
        if self.token_std is not None and not 0.0 < self.token_std < math.inf:
            raise ValueError(
                f"`token_std` must be finite and positive, but is {self.token_std!r} instead."
            )


class PositionEncoding(nn.Module):
    """Base class. A subclass overrides some of the nine hooks; the rest are the identity or zero.

    Its attributes say what a model has to know before it is built.

    Attributes:
        shared_across_layers: one instance for the whole model instead of one per layer.
        keeps_absolute_embedding: whether the framework's absolute embedding stays on beside it,
            as in the LRPE paper, or is replaced by it.
        causal_refusal: why a causal model cannot have it; None where it can.
        bidirectional_refusal: why bidirectional and cross-attention cannot; None where they can.
            A class with ``log_decay`` that says nothing has a sentence about that.
        embed_window: how many tokens, up to its own, ``embed`` looks at in a causal model.

    Further properties, with defaults, are in ``properties.py``; optional methods, such as
    ``redraw``, in ``protocols.py``.

    Parameters have the dtype that the model is cast to, and are computed with in float32 or wider
    (``widened``): a position beyond 256 is not representable in bfloat16. Fixed draws, which are
    buffers, stay in float32. What follows from sizes alone is no part of a module (``tables.py``).
    """

    shared_across_layers: bool = False
    keeps_absolute_embedding: bool = True
    causal_refusal: str | None = None
    bidirectional_refusal: str | None = None
    embed_window: int = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Here, so that it also holds for a class whose author does not think of it: the sums of
        # linear attention decay from token to token, and would leave later keys out in silence.
        super().__init_subclass__(**kwargs)
        if "log_decay" in overridden_hooks(cls) and cls.bidirectional_refusal is None:
            cls.bidirectional_refusal = _DECAY_REFUSAL

    def __init__(self, context: EncodingContext) -> None:
        super().__init__()
        self.context = context
        self.label = type(self).__name__

    @property
    def hooks(self) -> frozenset[str]:
        """The names of the hooks that this encoding overrides."""
        return overridden_hooks(type(self))

    @property
    def parts(self) -> tuple["PositionEncoding", ...]:
        """The encodings that a composition is made of; itself where it is none."""
        return (self,)

    def parts_with(self, hook: str) -> list["PositionEncoding"]:
        """The parts that override a hook."""
        return [part for part in self.parts if hook in part.hooks]

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

    def bind_projections(self, q_proj: Projection, k_proj: Projection) -> None:
        """Be told the layer's own projections (C -> C), for encodings that use them too.

        A layer does it before every pass, since they may be replaced, as by adapters.
        """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self._buffers[name]
            if moved is not None and moved.dtype in _HALVES:
                self._buffers[name] = buffer.to(moved.device)
        return self


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The widest dtype of some tensors, or float32 where they are in half precision."""
    return reduce(torch.promote_types, (x.dtype for x in tensors), torch.float32)


def widened(x: Tensor) -> Tensor:
    """A tensor in float32 or wider, as which parameters in half precision are computed with."""
    return x.to(at_least_float32(x))


def overridden_hooks(cls: type[PositionEncoding]) -> frozenset[str]:
    """The names of the hooks that a class overrides."""
    base = PositionEncoding
    return frozenset(h for h in ALL_HOOKS if getattr(cls, h) is not getattr(base, h))


def relative_positions(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """``k_positions - q_positions``: (B or 1, T), (B or 1, S) -> (B or 1, T, S)."""
    return k_positions.unsqueeze(-2) - q_positions.unsqueeze(-1)


def check_features(encoding: PositionEncoding, x: Tensor) -> None:
    """Refuse heads (B, H, T, D) of other sizes than an encoding was built for.

    Raises:
        ValueError: another D, with which some encodings would compute something else.
    """
    if x.size(-1) != encoding.context.head_dim:
        raise ValueError(
            f"`x` must have head_dim={encoding.context.head_dim} features, (B, H, T, D), for the "
            f"encoding {encoding.label!r}, but is {tuple(x.shape)} instead."
        )
