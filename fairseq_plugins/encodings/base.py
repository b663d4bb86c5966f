"""Base class of all position encodings, and the context that a model builds them with.

An encoding is a new file in this package with a class, decorated by ``register_encoding``, that
overrides one of these hooks:

- ``embed(x, positions)``: an absolute encoding, added to the token embeddings::

      def embed(self, x, positions, **_):  # lengths and tokens, which few encodings need
          return x + self.table[positions]

- ``transform_query(q, positions)``: a relative encoding under softmax and linear attention. Write
  ``transform_key`` too; their dot product must depend on the difference of the positions alone::

      def transform_query(self, q, positions):
          return rotate(q, *self.cos_sin(positions))

- ``attn_bias(q_positions, k_positions)``: a bias on the logits, softmax attention only::

      def attn_bias(self, q_positions, k_positions):
          distance = relative_positions(q_positions, k_positions).abs()
          return -self.slopes.view(-1, 1, 1) * distance.unsqueeze(1)

Everything else has a default: the other hooks, the class attributes, the properties that linear
attention and the catalogue need (``properties.py``), and optional methods (``protocols.py``). The
tests in ``tests/encodings`` and ``tests/attention`` cover every registered name.
docs/extending.md has more.

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
    "its hook `log_decay` weakens keys by their distance before the query, which is undefined for "
    "later keys"
)


class IncompatibleEncodingError(ValueError):
    """Error for an encoding that an attention, or its direction, does not support.

    Attributes:
        reason: the short reason, without names or alternatives; by default the whole message.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


@dataclass(frozen=True)
class EncodingContext:
    """Properties of the model that an encoding is built for.

    Attributes:
        num_heads: attention heads H.
        head_dim: features per head D.
        embed_dim: model width C; ``num_heads * head_dim`` by default.
        max_positions: longest sequence that the model is built for.
        causal: whether a query sees only keys at or before its own position.
        vocab_size: size of the dictionary, for encodings with a parameter per word; None if
            unknown.
        begins_with_cls: whether the sequences of a bidirectional model begin with [CLS], such as
            RoBERTa's <s>, and not with a word, as in translation models.
        token_std: initial standard deviation of the token embeddings; None if unknown, or if the
            model multiplies them by sqrt(C).
        generator: source of random fixed parameters; None is torch's global one.
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
    """Base class: a subclass overrides some of the nine hooks; the others do nothing.

    Every encoding takes its context first; options follow as keywords. A subclass documents those
    that its bases do not have.

    Args:
        context: properties of the model.

    Attributes:
        shared_across_layers: one instance for the whole model instead of one per layer.
        keeps_absolute_embedding: whether the framework's absolute embedding stays on beside it,
            as in the LRPE paper, or is replaced by it.
        causal_refusal: why causal models do not support it; None if they do.
        bidirectional_refusal: why bidirectional and cross-attention do not support it; None if
            they do. A class with ``log_decay`` gets a default reason.
        embed_window: consecutive tokens that ``embed`` reads for one output, its own included.

    Further properties, with defaults, are in ``properties.py``; optional methods, such as
    ``redraw``, in ``protocols.py``.

    Parameters have the dtype of the model, but computations with them use float32 or wider
    (``widened``), since bfloat16 cannot represent positions beyond 256. Buffers with random draws
    stay in float32. Constants that follow from sizes alone are not stored in a module: see
    ``tables.py``.
    """

    shared_across_layers: bool = False
    keeps_absolute_embedding: bool = True
    causal_refusal: str | None = None
    bidirectional_refusal: str | None = None
    embed_window: int = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # By default for every such class: decaying sums would silently omit later keys.
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
        """The encodings of a composition; for any other encoding, itself."""
        return (self,)

    def parts_with(self, hook: str) -> list["PositionEncoding"]:
        """Return the parts that override a hook."""
        return [part for part in self.parts if hook in part.hooks]

    def embed(
        self,
        x: Tensor,
        positions: Tensor,
        *,
        lengths: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Add absolute positions to token embeddings: (B, T, C) -> (B, T, C).

        ``lengths`` (B,) int64 are the lengths without padding and ``tokens`` (B, T) the token ids.
        An encoding names those that it needs; ``**_`` takes the others.
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
        """Decode the weighted sum of encoded values: (B, H, T, D) -> (B, H, T, D)."""
        return output

    def log_decay(self) -> Tensor:
        """Return log r <= 0 (H,) float32: causal attention multiplies q.k by r^(s - t)."""
        raise NotImplementedError

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return a bias (B or 1, H, T, S) that is added to the logits after scaling."""
        raise NotImplementedError

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """Return a content-dependent term (B, H, T, S) that is added to q.k before scaling.

        ``q`` (B, H, T, D) and ``k`` (B, H, S, D) are not transformed yet.
        """
        raise NotImplementedError

    def relative_values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return a term (B, H, T, D) that is added to the output, from weights (B, H, T, S)."""
        raise NotImplementedError

    @property
    def encoded_dim(self) -> int:
        """D', the number of features of transformed queries and keys."""
        return self.context.head_dim

    def logit_scale(self) -> float:
        """Return the factor on q.k + relative_logits: 1/sqrt(head_dim), independent of D'."""
        return float(self.context.head_dim**-0.5)

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        """Return the layers whose input ``embed`` acts on; layer 0 reads the token embeddings."""
        return frozenset({0})

    def share_with(self, first: "PositionEncoding") -> None:
        """Use the shared parameters of the first layer's instance."""

    def bind_projections(self, q_proj: Projection, k_proj: Projection) -> None:
        """Receive the layer's query and key projections (C -> C), for encodings that use them.

        A layer calls it before every pass, since adapters may replace its projections.
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
    """Return the widest dtype of the tensors, at least float32."""
    return reduce(torch.promote_types, (x.dtype for x in tensors), torch.float32)


def widened(x: Tensor) -> Tensor:
    """Cast half precision to float32; leave wider tensors as they are."""
    return x.to(at_least_float32(x))


def overridden_hooks(cls: type[PositionEncoding]) -> frozenset[str]:
    """Return the names of the hooks that a class overrides."""
    base = PositionEncoding
    return frozenset(h for h in ALL_HOOKS if getattr(cls, h) is not getattr(base, h))


def relative_positions(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Return ``k_positions - q_positions``: (B or 1, T), (B or 1, S) -> (B or 1, T, S)."""
    return k_positions.unsqueeze(-2) - q_positions.unsqueeze(-1)


def check_features(encoding: PositionEncoding, x: Tensor) -> None:
    """Check that x (B, H, T, D) has the head_dim that the encoding was built for.

    Raises:
        ValueError: another D, for which some encodings would silently compute another result.
    """
    if x.size(-1) != encoding.context.head_dim:
        raise ValueError(
            f"`x` must have head_dim={encoding.context.head_dim} features, (B, H, T, D), for the "
            f"encoding {encoding.label!r}, but is {tuple(x.shape)} instead."
        )
