"""Base class of attentions: whole sequences, decoding steps, and fixed keys (cross-attention).

Shapes: B batch, H heads, T queries, S keys, D head_dim. Positions are (B or 1, T) int64,
padding masks (B, S) bool with True where padded.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from fairseq_plugins.attention.call import Call, keys_of
from fairseq_plugins.attention.inputs import check_dtypes, check_encoding, indices_where, rows_of
from fairseq_plugins.attention.positions import check_padding_mask, check_positions
from fairseq_plugins.attention.seeds import State, rows_by_seed, rows_of_state, run_by_seed
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import Compose, PositionEncoding, Stochastic
from fairseq_plugins.encodings.base import Projection
from fairseq_plugins.encodings.noise import draw_seed
from fairseq_plugins.encodings.protocols import Repositions, reads_projections


def draw_positions(
    position_sampler: Repositions | None, positions: Tensor, *, training: bool
) -> Tensor:
    """Return the positions (any shape) that all encodings of a model see in one pass.

    In training one of them may draw new ones at random, once for all layers and sequences.
    """
    if position_sampler is None or not training:
        return positions
    position_sampler.redraw(draw_seed())
    return position_sampler.reposition(positions)


class Attention(nn.Module):
    """Base class of attentions.

    Attributes:
        reads_projections: whether the encoding also uses the layer's projections.
        name: the value of the option ``attention_type``.
        supported_hooks: hooks of encodings that it supports.
        needs: what other hooks need that it does not have, as the end of a sentence.
        gives_weights: whether it supports ``need_weights``.
        span: the smallest unsupported distance between positions; None if all are supported.
        retains_dropout: whether weights are dropped in evaluation too.

    Args:
        encoding: the encoding inside the attention; None for none.
        num_heads: H.
        head_dim: D.
        causal: whether query s sees only keys t <= s.

    Raises:
        IncompatibleEncodingError: the attention does not support a hook of the encoding, or the
            encoding does not support ``causal``.
        ValueError: the encoding was built for other sizes, or for the other value of ``causal``.
    """

    name: ClassVar[str]
    supported_hooks: ClassVar[frozenset[str]]
    needs: ClassVar[str] = ""
    gives_weights: ClassVar[bool] = True
    span: int | None = None
    retains_dropout: bool = False

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
            check_encoding(self, encoding)
        # Values that are not encoded may have any size, such as unit vectors to read the weights.
        encoded_values = self.hooks & {"transform_value", "transform_output", "relative_values"}
        self._sized = ("q", "k", "v") if encoded_values else ("q", "k")
        # Indices instead of the parts, because a replica of the model has other parts.
        self._drawn = indices_where(self.parts, lambda part: isinstance(part, Stochastic))
        self._with_hook = {
            hook: [i for i, part in enumerate(self.parts) if hook in part.hooks]
            for hook in self.hooks
        }
        self.reads_projections = any(map(reads_projections, self.parts))

    @property
    def parts(self) -> tuple[PositionEncoding, ...]:
        """The parts of the encoding."""
        return self.encoding.parts if self.encoding is not None else ()

    def bind_projections(self, q_proj: Projection, k_proj: Projection) -> None:
        """Pass the layer's projections to the encodings that use them."""
        for part in self.parts if self.reads_projections else ():
            part.bind_projections(q_proj, k_proj)

    def _check_inputs(self, key_padding_mask: Tensor | None = None, **inputs: Tensor) -> None:
        """Check shapes and dtypes that would otherwise broadcast silently.

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
            heads = " and ".join(f"`{name}` has {x.size(1)}" for name, x in inputs.items())
            raise ValueError(
                f"`{'`, `'.join(inputs)}` must have num_heads={self.num_heads} heads, "
                f"(B, H, T, D), but {heads} instead; repeat heads of keys that several heads of "
                "queries share, as PositionalMultiheadAttention does."
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

    def __prepare_scriptable__(self) -> None:
        """Refuse ``torch.jit.script``, which would fail deep inside with an unclear message."""
        raise TypeError("TorchScript is not supported; use torch.compile or torch.export.")

    def fold_basis_(self, *projections: nn.Module) -> None:
        """Fold the encoding's change of basis into the projections, for inference.

        The default does nothing: the attention transforms queries and keys before encoding them.
        """

    def unfold_basis_(self, *projections: nn.Module) -> None:
        """Undo ``fold_basis_``."""

    def _parts_with(self, hook: str) -> list[PositionEncoding]:
        """Return the parts of the encoding that override a hook."""
        if hook not in self.hooks:
            return []
        parts = self.parts
        return [parts[i] for i in self._with_hook[hook]]

    def _encoded(self, hook: str, x: Tensor, positions: Tensor) -> Tensor:
        """Apply a hook that transforms vectors (B, H, T, D), if the encoding has it.

        The parts are called instead of a composition, which would sample positions once more.
        """
        parts = self._parts_with(hook)
        for part in reversed(parts) if hook == "transform_output" else parts:
            x = getattr(part, hook)(x, positions)
        return x

    def _sampled(self, positions: Tensor) -> Tensor:
        """Return the positions that the encoding's parts see; in training, one may sample them."""
        return self.encoding.sampled(positions) if isinstance(self.encoding, Compose) else positions

    def _redraw(self, k: Tensor, state: State | None = None) -> State:
        """Draw the noise of stochastic encodings, from a new seed or the one in ``state``.

        Returns:
            ``{"seed": (B, 1)}`` for the state, empty where nothing is drawn.
        """
        if not self._drawn:
            return {}
        drawn = state["seed"][0, 0] if state else draw_seed()
        # A compiled graph cannot turn a tensor into a number.
        seed = drawn if torch.compiler.is_compiling() else int(drawn)
        parts = self.parts
        for index in self._drawn:
            parts[index].redraw(seed)  # type: ignore[operator]
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
                or added to the logits; in addition to the causal mask of a causal attention. The
                output of a query that sees no key is zero, as in PyTorch.
            need_weights: also return the weights (B, H, T, S).
            shared: cache of values shared with other layers that have the same positions and
                masks; None for none, as under non-reentrant activation checkpointing.

        Returns:
            The output (B, H, T, D), and the weights or None.

        Raises:
            ValueError: ``attn_mask`` or ``need_weights`` is not supported, or shapes or dtypes do
                not fit.
        """
        self._check_inputs(key_padding_mask, q=q, k=k, v=v)
        check_positions("q_positions", q_positions, q.size(0), q.size(2))
        check_positions("k_positions", k_positions, k.size(0), k.size(2))
        self._redraw(k)
        keys = keys_of(k, v, self._sampled(k_positions), key_padding_mask)
        q_positions, shared = self._sampled(q_positions), shared or SharedPass()
        call = Call(q, q_positions, keys, self.causal, shared, attn_mask)
        return self._forward(call, need_weights)

    def attend_packed(
        self, q: Tensor, k: Tensor, v: Tensor, *, positions: Tensor, document: Tensor
    ) -> Tensor | None:
        """Attend within each document of a packed row, q, k and v (1, H, T, D).

        ``positions`` (1, T) begin at 0 in each document; ``document`` (T,) int64, in order, numbers
        the document of each token.

        Returns:
            (1, H, T, D), or None if the documents must be unpacked into a batch instead.
        """
        return None

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
        """Attend causally from the next T tokens (usually 1) to themselves and those in ``state``.

        The bound of ``positions`` (``with_end``) must hold for the tokens in ``state`` too.

        Returns:
            The output (B, H, T, D) and the state after these tokens: tensors with the batch
            first, so that a beam is reordered by indexing them.

        Raises:
            ValueError: the attention is not causal, or shapes or dtypes do not fit.
        """
        self._check_inputs(key_padding_mask, q=q, k=k, v=v)
        check_positions("positions", positions, q.size(0), q.size(2))
        if not self.causal:
            raise ValueError("`causal` must be True for an attention that decodes step by step.")
        if self._drawn and state and (groups := rows_by_seed(state)):
            given, mask = state, key_padding_mask

            def run(rows: Tensor) -> tuple[Tensor, State]:
                return self.step(
                    *(x[rows] for x in (q, k, v)),
                    positions=rows_of(positions, rows),
                    key_padding_mask=None if mask is None else mask[rows],
                    state=rows_of_state(given, rows),
                )

            return run_by_seed(groups, run)
        seed = self._redraw(k, state)
        positions = self._sampled(positions)
        keys = keys_of(k, v, positions, key_padding_mask)
        output, after = self._step(Call(q, positions, keys, True, shared or SharedPass()), state)
        return output, {**after, **seed}

    def remember(
        self,
        k: Tensor,
        v: Tensor,
        *,
        k_positions: Tensor,
        key_padding_mask: Tensor | None = None,
    ) -> State:
        """Return the state of fixed keys and values, for cross-attention."""
        self._check_inputs(key_padding_mask, k=k, v=v)
        check_positions("k_positions", k_positions, k.size(0), k.size(2))
        seed = self._redraw(k)
        keys = keys_of(k, v, self._sampled(k_positions), key_padding_mask)
        return {**self._remember(keys), **seed}

    def attend(
        self,
        q: Tensor,
        state: State,
        *,
        q_positions: Tensor,
        need_weights: bool = False,
        shared: SharedPass | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from queries (B, H, T, D) to the keys in ``state``, without a causal mask."""
        self._check_inputs(q=q)
        check_positions("q_positions", q_positions, q.size(0), q.size(2))
        if self._drawn and (groups := rows_by_seed(state)):

            def run(rows: Tensor) -> tuple[Tensor, State]:
                at, keys = rows_of(q_positions, rows), rows_of_state(state, rows)
                output, weights = self.attend(
                    q[rows], keys, q_positions=at, need_weights=need_weights
                )
                return output, {} if weights is None else {"weights": weights}

            output, others = run_by_seed(groups, run)
            return output, others.get("weights")
        self._redraw(q, state)
        call = Call(q, self._sampled(q_positions), state, False, shared or SharedPass())
        return self._attend(call, need_weights)

    # To implement in subclasses. Before each call inputs are checked, noise is drawn, and positions
    # are sampled.

    def _forward(self, call: Call, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError

    def _step(self, call: Call, state: State | None) -> tuple[Tensor, State]:
        raise NotImplementedError

    def _remember(self, keys: State) -> State:
        raise NotImplementedError

    def _attend(self, call: Call, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError
