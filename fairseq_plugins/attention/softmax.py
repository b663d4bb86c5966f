"""Softmax ("vanilla") attention on PyTorch's scaled_dot_product_attention."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.attention.base import Attention, State
from fairseq_plugins.attention.cache import append_state, used_rows
from fairseq_plugins.attention.call import Call, keys_of, without_padding
from fairseq_plugins.attention.flex import attend_by_pairs, gives_pairs, takes_pairs
from fairseq_plugins.attention.inputs import check_dtypes, has_gradient, indices_where
from fairseq_plugins.attention.masks import (
    added_mask,
    attention_mask,
    hidden_pairs,
    plus,
    sdpa_mask,
    split_mask,
    zero_masked,
)
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.attention.terms import decay_term, sum_of_terms
from fairseq_plugins.encodings import ALL_HOOKS, PositionEncoding, SeesMask
from fairseq_plugins.encodings.position_bounds import with_end_of
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
        for part in parts_to_fold(self.parts):
            part.fold_basis_(*projections)

    def unfold_basis_(self, *projections: nn.Module) -> None:
        for part in parts_to_fold(self.parts):
            part.unfold_basis_(*projections)

    def _forward(self, call: Call, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        k, k_positions = call.state["k"], call.state["k_positions"]
        attn_mask = attention_mask(call.attn_mask, call.q, k)
        # Not expanded to the batch, so that biases are computed once if all rows agree.
        state = self._remember(call.state)
        state["k_positions"] = k_positions
        call = Call(call.q, call.q_positions, state, self.causal, call.shared, attn_mask)
        by_pairs = attn_mask is None and not need_weights and self._takes_pairs(call.q, k)
        if by_pairs and (output := self._read_by_pairs(call)) is not None:
            return output, None
        read = self._read(call, need_weights)
        return zero_masked(*read, call)

    def attend_packed(
        self, q: Tensor, k: Tensor, v: Tensor, *, positions: Tensor, document: Tensor
    ) -> Tensor | None:
        if not self._takes_pairs(q, k) or self._drawn:
            return None
        self._check_inputs(q=q, k=k, v=v)
        state = self._remember(keys_of(k, v, positions, None))
        return self._read_by_pairs(Call(q, positions, state, self.causal, SharedPass()), document)

    def _step(self, call: Call, state: State | None) -> tuple[Tensor, State]:
        new = self._remember(call.state)
        state = append_state(state, new) if state else new
        with_end_of(state["k_positions"], call.q_positions)
        return self._read(Call(call.q, call.q_positions, state, True, call.shared))[0], state

    def _remember(self, keys: State) -> State:
        k, v = without_padding(keys, keys["k"], keys["v"])
        positions = keys["k_positions"]
        state = {
            "k": self._encoded("transform_key", k, positions),
            "v": self._encoded("transform_value", v, positions),
            "k_positions": with_end_of(positions.expand(k.size(0), -1), positions),
        }
        if "relative_logits" in self.hooks and "transform_key" in self.hooks:
            state["content_k"] = k
        if "key_padding_mask" in keys:
            state["key_padding_mask"] = keys["key_padding_mask"]
        return state

    def _attend(self, call: Call, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        check_dtypes(q=call.q, v=call.state["v"])
        return zero_masked(*self._read(call, need_weights), call)

    def _takes_pairs(self, q: Tensor, k: Tensor) -> bool:
        return self._gives_pairs and not self._dropout and takes_pairs(q, k, causal=self.causal)

    def _read_by_pairs(self, call: Call, document: Tensor | None = None) -> Tensor | None:
        """Return the output of FlexAttention, or None where it does not run."""
        encode = partial(self._encoded, "transform_query")
        output = attend_by_pairs(self._biases, encode, call, scale=self.scale, document=document)
        if output is None:
            return None
        return self._encoded("transform_output", output, call.q_positions)

    def _read(self, call: Call, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """Attend to the keys of a call; return the decoded output, and the weights or None."""
        parts = self._parts_with("relative_values")
        if not parts and not need_weights:
            return self._encoded("transform_output", self._output(call), call.q_positions), None
        output, weights, dropped = self._weigh(call)
        output = self._encoded("transform_output", output, call.q_positions)
        if parts:
            # After decoding, since this term is not encoded as values are.
            output = output + sum_of_terms(parts, "relative_values", dropped, *call.positions)
        return output, weights if need_weights else None

    def _weigh(self, call: Call) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output, and the weights before and after dropout."""
        q, relative, decay = self._terms(call)
        k, v = used_rows(call.state, "k"), used_rows(call.state, "v")
        hidden, added = split_mask(call, plus(decay, self._bias(call)))
        hidden = hidden_pairs(hidden, call.hides_later, q.size(2), k.size(2), q.device)
        terms = (None if relative is None else self.scale * relative, added)
        return softmax_with_weights(q, k, v, terms, hidden, scale=self.scale, dropout=self._dropout)

    def _output(self, call: Call) -> Tensor:
        """Return the output without weights, by the fastest kernel that has all gradients."""
        if self._goes_by_blocks(call):
            return self._output_by_blocks(call)
        q, relative, decay = self._terms(call)
        k, v = used_rows(call.state, "k"), used_rows(call.state, "v")
        dropout, has_graph = self._dropout, torch.is_grad_enabled()
        is_plain = self._adds_nothing and not call.is_masked
        if q.size(2) == 1 and is_plain and not (dropout or has_graph or is_transformed()):
            # The usual step of generation.
            return F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        by_head = has_graph and not dropout and can_go_by_head(q, k)
        alone = decay is None and not (call.is_masked or call.hides_later or self._biases)
        if by_head and alone and has_gradient(relative):
            return softmax_by_head(q, k, v, relative, scale=self.scale, share=self.scale)
        content = plus(None if relative is None else self.scale * relative, decay)
        mask, is_causal = self._shared_mask(call, content, q.dtype)
        if by_head and (has_gradient(mask) or (q.requires_grad and q.size(-1) != v.size(-1))):
            mask = added_mask(mask, is_causal, q, k.size(2))
            return softmax_by_head(q, k, v, mask, scale=self.scale)
        is_added = mask is not None and mask.is_floating_point()
        if is_transformed() and (is_added or forward_ad._current_level >= 0):
            # The fused kernel has no derivative in forward mode, and refuses a mask with a
            # gradient, which it may have outside of the transform.
            terms, scale = (added_mask(mask, is_causal, q, k.size(2)),), self.scale
            output, *_ = softmax_with_weights(q, k, v, terms, None, scale=scale, dropout=dropout)
            return output
        return F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=dropout, is_causal=is_causal, scale=self.scale
        )

    def _goes_by_blocks(self, call: Call) -> bool:
        """Return whether the values added to the logits are too many for one tensor."""
        if self._adds_nothing or self._seeing_mask or torch.compiler.is_compiling():
            return False
        if self._drawn and torch.is_grad_enabled():
            return False  # backward would encode with the noise of the latest pass
        heads, queries = call.q.shape[1:3]
        values = heads * queries * call.state["k_positions"].size(1)
        many = MANY_ADDED_IN_TRAINING if torch.is_grad_enabled() else MANY_ADDED
        return call.attn_mask is None and queries > BLOCK and values >= many

    def _output_by_blocks(self, call: Call) -> Tensor:
        """Return the output, computed for ``BLOCK`` queries at a time and the keys that they see.

        Backward computes the added values again instead of keeping T x S of them.
        """

        def attend(begin: int) -> Tensor:
            return self._output(call.block(begin, min(begin + BLOCK, call.q.size(2))))

        begins = range(0, call.q.size(2), BLOCK)
        if not torch.is_grad_enabled():
            return torch.cat([attend(begin) for begin in begins], dim=2)
        outputs = [checkpoint(attend, begin, use_reentrant=False) for begin in begins]
        return torch.cat(outputs, dim=2)

    def _terms(self, call: Call) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return encoded queries, unscaled ``relative_logits``, and the decay's term, or None."""
        relative = self._relative_logits(call)
        q = self._encoded("transform_query", call.q, call.q_positions)
        decay: Tensor | None = None
        if self.encoding is not None and "log_decay" in self.hooks:
            k, log_decay = used_rows(call.state, "k"), self.encoding.log_decay()
            decay = decay_term(log_decay, q, k, *call.positions, scale=self.scale)
        return q, relative, decay

    def _shared_mask(
        self, call: Call, content: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor | None, bool]:
        """Return the result of ``_mask``, computed once per pass if all layers share it."""
        if content is not None or call.attn_mask is not None or not self._biases_are_shared:
            return self._mask(call, content, dtype)
        # Without lengths, which a dictionary key would fix in a compiled graph.
        key = ("mask", call.hides_later, dtype, *map(id, self._biases))
        return call.shared.once(key, lambda: self._mask(call, None, dtype))

    def _mask(
        self, call: Call, content: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor | None, bool]:
        """Return the mask for scaled_dot_product_attention, and whether to set is_causal."""
        queries, keys = call.q.size(2), call.state["k_positions"].size(1)
        hidden, added = split_mask(call, plus(content, self._bias(call)))
        causal = call.hides_later
        if hidden is None and added is None and (not causal or queries == keys):
            return None, causal
        hidden = hidden_pairs(hidden, causal, queries, keys, call.q.device)
        return sdpa_mask(hidden, added, dtype), False

    def _relative_logits(self, call: Call) -> Tensor | None:
        """Return the unscaled ``relative_logits`` (B, H, T, S), or None."""
        parts = self._parts_with("relative_logits")
        if not parts:
            return None
        k = used_rows(call.state, "content_k" if "content_k" in call.state else "k")
        if self._seeing_mask:
            hidden, _ = split_mask(call, None)
            for index in self._seeing_mask:
                self.parts[index].see_mask(hidden)  # type: ignore[operator]
        return sum_of_terms(parts, "relative_logits", call.q, k, *call.positions)

    def _bias(self, call: Call) -> Tensor | None:
        """Return the sum of biases (B or 1, H, T, S), or None; shared ones once per pass."""
        biases = self._biases
        if not biases:
            return None
        return sum_of_terms(biases, "attn_bias", *call.positions, shared=call.shared)
