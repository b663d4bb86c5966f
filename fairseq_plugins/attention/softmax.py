"""Softmax ("vanilla") attention on PyTorch's scaled_dot_product_attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.attention.base import Attention, State
from fairseq_plugins.attention.cache import append_state, first_keys, used_rows
from fairseq_plugins.attention.flex import attend_by_pairs, gives_pairs, takes_pairs
from fairseq_plugins.attention.inputs import Keys, check_dtypes, has_gradient, indices_where
from fairseq_plugins.attention.masks import (
    added_mask,
    attention_mask,
    hidden_pairs,
    plus,
    sdpa_mask,
    split_mask,
    zero_blind,
)
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.attention.terms import decay_term, sum_of_terms
from fairseq_plugins.encodings import ALL_HOOKS, PositionEncoding, SeesMask
from fairseq_plugins.encodings.position_bounds import known_end, with_end
from fairseq_plugins.encodings.protocols import parts_to_fold
from fairseq_plugins.kernels.backend import is_transformed
from fairseq_plugins.kernels.softmax import can_go_by_head, softmax_by_head, softmax_with_weights

ADDED = frozenset({"attn_bias", "relative_logits", "log_decay"})
# Values added to the logits (heads x queries x keys) from which on queries go in blocks. That is
# faster without gradients, and slower with them, since backward computes the values again.
MANY_ADDED = 2**24
MANY_ADDED_IN_TRAINING = 2**27
BLOCK = 256


class SoftmaxAttention(Attention):
    """softmax(scale (q~ k~^T + relative_logits) + attn_bias) v~ (LRPE, Eq. 2 and 5).

    A decay multiplies q~ k~^T by powers of the distance, so that nothing grows with the position.

    Causal attention without padding or bias uses PyTorch's causal path, without a T x S mask.

    Args:
        encoding, num_heads, head_dim, causal: see ``Attention``.
        dropout: probability of dropping a weight in training.

    Raises:
        ValueError: a ``dropout`` outside 0..1.
    """

    name = "vanilla"
    supported_hooks = ALL_HOOKS

    def __init__(
        self,
        encoding: PositionEncoding | None,
        *,
        num_heads: int,
        head_dim: int,
        causal: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(encoding, num_heads=num_heads, head_dim=head_dim, causal=causal)
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"`dropout` must be between 0 and 1, but is {dropout} instead.")
        self.dropout = dropout
        self.scale = encoding.logit_scale() if encoding is not None else head_dim**-0.5
        self._seeing_mask = indices_where(self.parts, lambda part: isinstance(part, SeesMask))
        self._adds_nothing = not self.hooks & ADDED
        self._biases_are_shared = all(part.shared_across_layers for part in self._biases)
        self._gives_pairs = gives_pairs(encoding)

    @property
    def _dropout(self) -> float:
        return self.dropout if self.training or self.retains_dropout else 0.0

    @property
    def _biases(self) -> list[PositionEncoding]:
        return self._parts_with("attn_bias")

    def fold_basis_(self, *projections: nn.Module) -> None:
        for part in parts_to_fold(self.encoding) if self.encoding is not None else ():
            part.fold_basis_(*projections)

    def unfold_basis_(self, *projections: nn.Module) -> None:
        for part in parts_to_fold(self.encoding) if self.encoding is not None else ():
            part.unfold_basis_(*projections)

    def _forward(
        self,
        q: Tensor,
        q_positions: Tensor,
        keys: Keys,
        attn_mask: Tensor | None,
        need_weights: bool,
        shared: SharedPass | None,
    ) -> tuple[Tensor, Tensor | None]:
        attn_mask = attention_mask(attn_mask, q, keys.k)
        state = self._remember(keys)
        # Not expanded to the batch, so that biases are computed once if all rows agree.
        state["k_positions"] = keys.positions
        if attn_mask is None and not need_weights and self._takes_pairs(q, keys.k):
            shared = shared or SharedPass()
            if (output := self._read_by_pairs(q, state, q_positions, shared)) is not None:
                return output, None
        read = self._read(q, state, q_positions, self.causal, attn_mask, need_weights, shared)
        return read if attn_mask is None else zero_blind(*read, state, attn_mask, self.causal)

    def attend_packed(
        self, q: Tensor, k: Tensor, v: Tensor, *, positions: Tensor, document: Tensor
    ) -> Tensor | None:
        if not self._takes_pairs(q, k) or self._drawn:
            return None
        self._check_inputs(q=q, k=k, v=v)
        state = self._remember(Keys(k, v, positions, None))
        return self._read_by_pairs(q, state, positions, SharedPass(), document)

    def _step(
        self, q: Tensor, keys: Keys, state: State | None, shared: SharedPass | None
    ) -> tuple[Tensor, State]:
        new, positions = self._remember(keys), keys.positions
        state = append_state(state, new) if state else new
        with_end(state["k_positions"], known_end(positions))
        return self._read(q, state, positions, True, None, False, shared)[0], state

    def _remember(self, keys: Keys) -> State:
        k, v = keys.without_padding()
        positions = keys.positions
        state = {
            "k": self._encoded("transform_key", k, positions),
            "v": self._encoded("transform_value", v, positions),
            "k_positions": with_end(positions.expand(k.size(0), -1), known_end(positions)),
        }
        if "relative_logits" in self.hooks and "transform_key" in self.hooks:
            state["content_k"] = k
        if keys.padding_mask is not None:
            state["key_padding_mask"] = keys.padding_mask
        return state

    def _attend(
        self,
        q: Tensor,
        q_positions: Tensor,
        state: State,
        need_weights: bool,
        shared: SharedPass | None,
    ) -> tuple[Tensor, Tensor | None]:
        check_dtypes(q=q, v=state["v"])
        return self._read(q, state, q_positions, False, None, need_weights, shared)

    def _takes_pairs(self, q: Tensor, k: Tensor) -> bool:
        return self._gives_pairs and not self._dropout and takes_pairs(q, k, causal=self.causal)

    def _read_by_pairs(
        self,
        q: Tensor,
        state: State,
        q_positions: Tensor,
        shared: SharedPass,
        document: Tensor | None = None,
    ) -> Tensor | None:
        """Return the output of FlexAttention, or None where it does not run."""
        output = attend_by_pairs(
            self._biases,
            self._encoded("transform_query", q, q_positions),
            state,
            q_positions,
            shared,
            scale=self.scale,
            causal=self.causal,
            document=document,
        )
        if output is None:
            return None
        return self._encoded("transform_output", output, q_positions)

    def _read(
        self,
        q: Tensor,
        state: State,
        q_positions: Tensor,
        causal: bool,
        attn_mask: Tensor | None,
        need_weights: bool,
        shared: SharedPass | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend and decode values; with ``causal``, the last T keys belong to the T queries."""
        shared = shared or SharedPass()
        output, weights, dropped = self._weigh(
            q, state, q_positions, causal, attn_mask, need_weights, shared
        )
        output = self._encoded("transform_output", output, q_positions)
        if parts := self._parts_with("relative_values"):
            # After decoding, since this term is not encoded as values are.
            assert dropped is not None
            at = (q_positions, state["k_positions"])
            output = output + sum_of_terms(parts, "relative_values", dropped, *at)
        return output, weights if need_weights else None

    def _weigh(
        self,
        q: Tensor,
        state: State,
        q_positions: Tensor,
        causal: bool,
        attn_mask: Tensor | None,
        need_weights: bool,
        shared: SharedPass,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the output, and the weights before and after dropout or None if not needed."""
        weighs = need_weights or "relative_values" in self.hooks
        if not weighs and attn_mask is None and self._goes_by_blocks(q, state):
            return self._weigh_by_blocks(q, state, q_positions, causal), None, None
        relative = self._relative_logits(q, state, q_positions, attn_mask)
        q = self._encoded("transform_query", q, q_positions)
        k, v = used_rows(state, "k"), used_rows(state, "v")
        masked = weighs or attn_mask is not None or "key_padding_mask" in state
        needs_more = not self._adds_nothing or bool(self._dropout) or torch.is_grad_enabled()
        if q.size(2) == 1 and not masked and not needs_more:  # the usual step of generation
            return F.scaled_dot_product_attention(q, k, v, scale=self.scale), None, None
        decay: Tensor | None = None
        if self.encoding is not None and "log_decay" in self.hooks:
            at = (q_positions, state["k_positions"])
            decay = decay_term(self.encoding.log_decay(), q, k, *at, scale=self.scale)
        if q.size(2) == 1:
            causal = False  # A branch, since a comparison would be symbolic in a compiled graph.
        if weighs:
            added = plus(decay, self._bias(q_positions, state["k_positions"], shared))
            hidden, added = split_mask(state, attn_mask, added)
            hidden = hidden_pairs(hidden, causal, q.size(2), k.size(2), q.device)
            relative = None if relative is None else self.scale * relative
            return softmax_with_weights(
                q, k, v, (relative, added), hidden, scale=self.scale, dropout=self._dropout
            )
        by_head = torch.is_grad_enabled() and not self._dropout and can_go_by_head(q, k)
        alone = decay is None and attn_mask is None and not causal and not self._biases
        if by_head and alone and has_gradient(relative) and "key_padding_mask" not in state:
            output = softmax_by_head(q, k, v, relative, scale=self.scale, share=self.scale)
            return output, None, None
        content = plus(None if relative is None else self.scale * relative, decay)

        def make() -> tuple[Tensor | None, bool]:
            return self._mask(q, state, q_positions, causal, attn_mask, content, shared)

        if content is None and attn_mask is None and self._biases_are_shared:
            # Without lengths, which a dictionary key would fix in a compiled graph.
            key = ("mask", causal, q.dtype, *map(id, self._biases))
            mask, is_causal = shared.once(key, make)
        else:
            mask, is_causal = make()
        if by_head and (has_gradient(mask) or (q.requires_grad and q.size(-1) != v.size(-1))):
            mask = added_mask(mask, is_causal, q, k.size(2))
            return softmax_by_head(q, k, v, mask, scale=self.scale), None, None
        if is_transformed() and mask is not None and mask.is_floating_point():
            # It may have a gradient outside of the transform, which the fused kernel refuses.
            terms, scale, dropout = (mask,), self.scale, self._dropout
            output, *_ = softmax_with_weights(q, k, v, terms, None, scale=scale, dropout=dropout)
            return output, None, None
        output = F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=self._dropout, is_causal=is_causal, scale=self.scale
        )
        return output, None, None

    def _goes_by_blocks(self, q: Tensor, state: State) -> bool:
        """Return whether the values added to the logits are too many for one tensor (T, S)."""
        if self._adds_nothing or self._seeing_mask or torch.compiler.is_compiling():
            return False
        values = q.size(1) * q.size(2) * state["k_positions"].size(1)
        many = MANY_ADDED_IN_TRAINING if torch.is_grad_enabled() else MANY_ADDED
        return q.size(2) > BLOCK and values >= many

    def _weigh_by_blocks(
        self, q: Tensor, state: State, q_positions: Tensor, causal: bool
    ) -> Tensor:
        """Return the output, computed for ``BLOCK`` queries at a time and the keys that they see.

        Backward computes the added values again instead of keeping T x S of them.
        """
        queries, keys = q.size(2), state["k_positions"].size(1)
        has_gradient = torch.is_grad_enabled()
        outputs = []
        for begin in range(0, queries, BLOCK):
            end = min(begin + BLOCK, queries)
            seen = keys - queries + end if causal else keys
            part = first_keys(state, seen)
            at = with_end(q_positions[:, begin:end], known_end(q_positions))

            def attend(
                rows: Tensor = q[:, :, begin:end], part: State = part, at: Tensor = at
            ) -> Tensor:
                return self._weigh(rows, part, at, causal, None, False, SharedPass())[0]

            outputs.append(checkpoint(attend, use_reentrant=False) if has_gradient else attend())
        return torch.cat(outputs, dim=2)

    def _mask(
        self,
        q: Tensor,
        state: State,
        q_positions: Tensor,
        causal: bool,
        attn_mask: Tensor | None,
        content: Tensor | None,
        shared: SharedPass,
    ) -> tuple[Tensor | None, bool]:
        """Return the mask for scaled_dot_product_attention, and whether to set is_causal."""
        queries, keys = q.size(2), state["k_positions"].size(1)
        added = plus(content, self._bias(q_positions, state["k_positions"], shared))
        hidden, added = split_mask(state, attn_mask, added)
        if hidden is None and added is None and (not causal or queries == keys):
            return None, causal
        hidden = hidden_pairs(hidden, causal, queries, keys, q.device)
        return sdpa_mask(hidden, added, q.dtype), False

    def _relative_logits(
        self, q: Tensor, state: State, q_positions: Tensor, attn_mask: Tensor | None
    ) -> Tensor | None:
        """Return the unscaled ``relative_logits`` (B, H, T, S), or None."""
        parts = self._parts_with("relative_logits")
        if not parts:
            return None
        k = used_rows(state, "content_k" if "content_k" in state else "k")
        if self._seeing_mask:
            hidden, _ = split_mask(state, attn_mask, None)
            for index in self._seeing_mask:
                self.parts[index].see_mask(hidden)  # type: ignore[operator]
        return sum_of_terms(parts, "relative_logits", q, k, q_positions, state["k_positions"])

    def _bias(self, q_positions: Tensor, k_positions: Tensor, shared: SharedPass) -> Tensor | None:
        """Return the sum of biases (B or 1, H, T, S), or None; shared ones once per pass."""
        if not self._biases:
            return None
        return sum_of_terms(self._biases, "attn_bias", q_positions, k_positions, shared=shared)
