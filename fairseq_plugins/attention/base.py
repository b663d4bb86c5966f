"""What every attention offers: one pass over a sequence, one step of decoding, a fixed memory.

Shapes: B batch, H heads, T queries, S keys, D head_dim. Positions are (B or 1, T) int64,
padding masks (B, S) bool with True where padded.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from fairseq_plugins.attention.positions import check_padding_mask, check_positions
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import (
    Compose,
    IncompatibleEncodingError,
    PositionEncoding,
    Stochastic,
)
from fairseq_plugins.encodings.base import Projection
from fairseq_plugins.encodings.noise import draw_seed
from fairseq_plugins.encodings.position_bounds import is_recorded, known_end, with_end

State = dict[str, Tensor]


def check_dtypes(**inputs: Tensor) -> None:
    """Refuse inputs of several dtypes, except under autocast, which makes them one."""
    first = next(iter(inputs.values()))
    if all(x.dtype == first.dtype for x in inputs.values()) and first.is_floating_point():
        return
    if torch.is_autocast_enabled(first.device.type):
        return
    found = " and ".join(f"`{name}` is {x.dtype}" for name, x in inputs.items())
    raise ValueError(f"`{'`, `'.join(inputs)}` must have one floating dtype, but {found}.")


def _rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """Those of a batch, with the end that positions have; of one row for all, that."""
    return x if x.size(0) == 1 else with_end(x[rows], known_end(x))


def indices_where(
    parts: Sequence[PositionEncoding], has: Callable[[PositionEncoding], bool]
) -> tuple[int, ...]:
    """Numbers of the parts that have a property."""
    return tuple(number for number, part in enumerate(parts) if has(part))


def _reads_projections(part: PositionEncoding) -> bool:
    return type(part).bind_projections is not PositionEncoding.bind_projections


class Attention(nn.Module):
    """What all attentions have in common.

    Attributes:
        reads_projections: whether its encoding uses the projections of the layer, too.
        name: the value of the option ``attention_type``.
        supported_hooks: of encodings.
        refusal: what is said of other hooks, after their names.
        gives_weights: whether it can honour ``need_weights``.
        span: below which distance between positions it is defined; None for any.

    Args:
        encoding: acts inside the attention; None for no position encoding.
        num_heads: H.
        head_dim: D.
        causal: whether query s sees only keys t <= s.

    Raises:
        IncompatibleEncodingError: the encoding needs what this attention never computes, or
            does not know the sequence's length in a causal model.
        ValueError: it was built for other sizes, or for the other value of ``causal``.
    """

    name: ClassVar[str]
    supported_hooks: ClassVar[frozenset[str]]
    refusal: ClassVar[str] = ""
    gives_weights: ClassVar[bool] = True
    span: int | None = None

    def __init__(
        self,
        encoding: PositionEncoding | None,
        *,
        num_heads: int,
        head_dim: int,
        causal: bool,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.causal = num_heads, head_dim, causal
        self.encoding = encoding
        self.hooks = encoding.hooks if encoding is not None else frozenset[str]()
        if encoding is not None:
            self._check(encoding)
        # Values that nothing encodes may have any size, as unit vectors that read the weights.
        encoded_values = self.hooks & {"transform_value", "transform_output", "relative_values"}
        self._sized = ("q", "k", "v") if encoded_values else ("q", "k")
        # Their numbers and not the parts, which are others in a replica of the model.
        self._drawn = indices_where(self.parts, lambda part: isinstance(part, Stochastic))
        self.reads_projections = any(map(_reads_projections, self.parts))

    @property
    def parts(self) -> tuple[PositionEncoding, ...]:
        """The encodings that its encoding is made of."""
        return self.encoding.parts if self.encoding is not None else ()

    def bind_projections(self, q_proj: Projection, k_proj: Projection) -> None:
        """Tell the encodings that use them too which projections the layer has in this pass."""
        for part in self.parts if self.reads_projections else ():
            part.bind_projections(q_proj, k_proj)

    def _check(self, encoding: PositionEncoding) -> None:
        missing = sorted(self.hooks - self.supported_hooks)
        if missing:
            reason = f"its hook `{'`, `'.join(missing)}` {self.refusal}"
            raise IncompatibleEncodingError(
                f"{self.name} attention cannot use the encoding {encoding.label!r}: {reason}.",
                reason,
            )
        if self.causal and encoding.causal_refusal:
            raise IncompatibleEncodingError(
                f"a causal model cannot use the encoding {encoding.label!r}: "
                f"{encoding.causal_refusal}.",
                encoding.causal_refusal,
            )
        if not self.causal and encoding.bidirectional_refusal:
            raise IncompatibleEncodingError(
                f"bidirectional and cross-attention cannot use the encoding {encoding.label!r}: "
                f"{encoding.bidirectional_refusal}.",
                encoding.bidirectional_refusal,
            )
        shape = (encoding.context.num_heads, encoding.context.head_dim)
        if shape != (self.num_heads, self.head_dim):
            raise ValueError(
                f"`encoding` was built for (num_heads, head_dim) = {shape}, "
                f"but the attention has {(self.num_heads, self.head_dim)}."
            )
        parts = (part for part in encoding.modules() if isinstance(part, PositionEncoding))
        if any(part.context.causal != self.causal for part in parts):
            raise ValueError(
                f"`encoding` {encoding.label!r} must be built for causal={self.causal}, which its "
                f"attention is, but was for causal={not self.causal} instead."
            )

    def _check_inputs(self, key_padding_mask: Tensor | None = None, **inputs: Tensor) -> None:
        """Refuse what would be broadcast, or taken for something else, without a word.

        ``inputs`` are some of ``q``, ``k`` and ``v``.
        """
        for name, x in inputs.items():
            if x.dim() != 4:
                raise ValueError(f"`{name}` must be (B, H, T, D), but is {tuple(x.shape)} instead.")
            if name in self._sized and x.size(3) != self.head_dim:
                raise ValueError(
                    f"`{name}` must have head_dim={self.head_dim} features, (B, H, T, D), but has "
                    f"{x.size(3)} instead."
                )
        check_dtypes(**inputs)
        if any(x.size(1) != self.num_heads for x in inputs.values()):
            found = " and ".join(f"`{name}` has {x.size(1)}" for name, x in inputs.items())
            raise ValueError(
                f"`{'`, `'.join(inputs)}` must have num_heads={self.num_heads} heads, "
                f"(B, H, T, D), but {found} instead; heads of keys that several heads of queries "
                "share are repeated, as PositionalMultiheadAttention does."
            )
        if "k" not in inputs:
            return
        length = inputs["k"].size(2)
        if inputs["v"].size(2) != length:
            raise ValueError(
                f"`k` and `v` must have one length, but have {length} and "
                f"{inputs['v'].size(2)} instead."
            )
        if key_padding_mask is not None:
            check_padding_mask("key_padding_mask", key_padding_mask, length)

    @staticmethod
    def _check_positions(x: Tensor, **positions: Tensor) -> None:
        """Refuse what are not those of the tokens of ``x`` (B, H, T, D), by their names."""
        for name, at in positions.items():
            check_positions(name, at, x.size(0), x.size(2))

    def fold_basis_(self, *projections: nn.Module) -> None:
        """Have the encoding fold its change of basis into the projections, for inference.

        Here nothing is done, since something may stand between the two.
        """

    def unfold_basis_(self, *projections: nn.Module) -> None:
        """The projections as they were before ``fold_basis_``."""

    def _sampled_positions(self, *positions: Tensor) -> tuple[Tensor, ...]:
        """Positions for what is asked of a part by itself: in training drawn, where one draws."""
        if not isinstance(self.encoding, Compose):
            return positions
        return self.encoding.with_sampled_positions(positions, {})[0]

    def _rows_by_seed(self, state: State | None) -> list[Tensor]:
        """The rows of each seed in a state joined from several decodings; empty if all are one."""
        if not self._drawn or state is None or is_recorded(state["seed"]):
            return []
        seeds = state["seed"][:, 0].tolist()
        if len(set(seeds)) == 1:
            return []
        device = state["seed"].device
        return [
            torch.tensor([i for i, of in enumerate(seeds) if of == seed], device=device)
            for seed in dict.fromkeys(seeds)
        ]

    def _step_by_seed(
        self,
        groups: list[Tensor],
        tensors: Sequence[Tensor],
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: State,
    ) -> tuple[Tensor, State]:
        """``step`` of queries, keys and values whose rows have several seeds."""
        outputs, states = [], []
        for rows in groups:
            output, after = self.step(
                *(x[rows] for x in tensors),
                positions=_rows_of(positions, rows),
                key_padding_mask=None if key_padding_mask is None else key_padding_mask[rows],
                state={name: _rows_of(tensor, rows) for name, tensor in state.items()},
            )
            outputs.append(output)
            states.append(after)
        order = torch.cat(groups).argsort()
        joined = {name: torch.cat([after[name] for after in states])[order] for name in states[0]}
        return torch.cat(outputs)[order], joined

    def _attend_by_seed(
        self,
        groups: list[Tensor],
        q: Tensor,
        state: State,
        q_positions: Tensor,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """``attend`` of queries whose rows have several seeds."""
        results = [
            self.attend(
                q[rows],
                {name: _rows_of(tensor, rows) for name, tensor in state.items()},
                q_positions=_rows_of(q_positions, rows),
                need_weights=need_weights,
            )
            for rows in groups
        ]
        order = torch.cat(groups).argsort()
        weights = [found for _, found in results if found is not None]
        output = torch.cat([output for output, _ in results])[order]
        return output, torch.cat(weights)[order] if weights else None

    def _redraw(self, k: Tensor, state: State | None = None) -> State:
        """Draw anew for a stochastic encoding, or again as in ``state``.

        Returns:
            ``{"seed": (B, 1)}`` for the state, empty where nothing is drawn.
        """
        if not self._drawn:
            return {}
        drawn = state["seed"][0, 0] if state else draw_seed()
        # No number can come out of a compiled graph.
        seed = drawn if torch.compiler.is_compiling() else int(drawn)
        parts = self.parts
        for number in self._drawn:
            parts[number].redraw(seed)  # type: ignore[operator]
        return {"seed": torch.as_tensor(seed, device=k.device).expand(k.size(0), 1)}

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        shared: SharedPass | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend over a whole sequence.

        Args:
            q: (B, H, T, D).
            k: (B, H, S, D).
            v: (B, H, S, D).
            q_positions: (B or 1, T).
            k_positions: (B or 1, S).
            key_padding_mask: (B, S).
            attn_mask: (T, S), (B, T, S), (B H, T, S) or (B, H, T, S), bool with True where hidden,
                or added to the logits; beside the causal mask, which an attention built causal
                always has.
            need_weights: also return the weights (B, H, T, S).
            shared: what this pass has in common with those of other layers, whose positions and
                masks are the same; by default nothing.

        Returns:
            The output (B, H, T, D), and the weights or None.

        Raises:
            ValueError: the attention cannot honour ``attn_mask`` or ``need_weights``, another
                number of heads or of their features, several dtypes outside autocast, or a mask
                of another type or length.
        """
        raise NotImplementedError

    def step(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        positions: Tensor,
        key_padding_mask: Tensor | None = None,
        state: State | None = None,
        shared: SharedPass | None = None,
    ) -> tuple[Tensor, State]:
        """Attend causally with the next T tokens (usually one), after those in ``state``.

        Positions that say where they end (``with_end``) speak for the tokens in ``state`` too.

        Returns:
            The output (B, H, T, D) and the state after these tokens: tensors with the batch
            first, so that a beam is reordered by indexing them.
        """
        raise NotImplementedError

    def remember(
        self,
        k: Tensor,
        v: Tensor,
        *,
        k_positions: Tensor,
        key_padding_mask: Tensor | None = None,
    ) -> State:
        """Everything that queries need to know of fixed keys, as in cross-attention."""
        raise NotImplementedError

    def attend(
        self,
        q: Tensor,
        state: State,
        *,
        q_positions: Tensor,
        need_weights: bool = False,
        shared: SharedPass | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Queries (B, H, T, D) against remembered keys, without causality."""
        raise NotImplementedError
