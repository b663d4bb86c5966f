"""State of one forward pass: positions of its tokens, input encodings and attentions.

Shapes: B batch, H heads, T tokens of this pass, S tokens with cached ones, D head_dim, C width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from fairseq_plugins.attention import Attention, make_positions
from fairseq_plugins.attention.documents import Documents, attend_documents
from fairseq_plugins.attention.positions import count_positions
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.position_bounds import with_end, with_end_of
from fairseq_plugins.encodings.uncompiled import uncompiled
from fairseq_plugins.integrations.huggingface.cache import StateLayer

IMPLEMENTATION = "fairseq_plugins"  # the name in transformers' AttentionInterface
# Options of AttentionInterface that change the attention itself.
_UNSUPPORTED = ("position_bias", "s_aux", "sliding_window", "softcap")
PASS_KEYWORD = "position_pass"  # keyword by which layers pass a ForwardPass to their attentions


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """State shared by the layers in one forward pass."""

    attentions: nn.ModuleList  # one for each layer
    inputs: Mapping[int, PositionEncoding]  # by the layer's index
    positions: Tensor  # (B or 1, T) int64; (1, L) of the longest document in a packed row
    padding_mask: Tensor | None  # (B, T) bool, True at padding; None without padding
    states: list[StateLayer] | None  # one for each layer, and possibly one for the input
    documents: Documents | None  # of a packed row; None if every row is one sequence
    shared: SharedPass | None  # None if activations are recomputed
    need_weights: bool  # whether attentions return their weights
    seed: int | None = None  # of all draws in one generation; None for new draws

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the output (B, H, T, D), and the weights or None, for (B, H, T, D) each."""
        attention = self.attentions[layer]
        assert isinstance(attention, Attention)
        if self.seed is None:
            return self._attend(attention, layer, q, k, v)
        # Same draws in every pass of a generation, without changing how tokens are sampled.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed + layer)
            return self._attend(attention, layer, q, k, v)

    def _attend(
        self, attention: Attention, layer: int, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        if self.documents is not None:
            return attend_documents(
                attention, q, k, v, self.documents, need_weights=self.need_weights
            )
        if self.states is not None:
            kept = self.states[layer]
            output, kept.state = attention.step(
                q,
                k,
                v,
                positions=self.positions,
                key_padding_mask=self.padding_mask,
                state=kept.state,
                shared=self.shared,
            )
            return output, None
        return attention(
            q,
            k,
            v,
            q_positions=self.positions,
            k_positions=self.positions,
            key_padding_mask=self.padding_mask,
            need_weights=self.need_weights,
            shared=self.shared,
        )

    def embed(self, layer: int, x: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Encode the input of a layer that has an input encoding: (B, T, C) -> (B, T, C).

        Args:
            layer: index of the layer; the first layer's input are token embeddings.
            x: (B, T, C).
            tokens: (B, T), token ids if known.
        """
        encoding = self.inputs[layer]
        if self.documents is not None:
            return self._embed_documents(encoding, x, tokens, self.documents)
        padded = self.padding_mask is not None
        if encoding.embed_window > 1 and (padded or self.states is not None):
            kept = StateLayer(croppable=False) if self.states is None else self.states[-1]
            return self._embed_neighbours(encoding, kept, x, tokens)
        lengths = torch.full((x.size(0),), x.size(1), device=x.device)
        if self.padding_mask is not None:
            lengths = (~self.padding_mask).sum(1)
            # Embeddings of padding may be nonzero, and an encoding may depend on neighbours.
            x = x.masked_fill(self.padding_mask.unsqueeze(-1), 0.0)
        return encoding.embed(x, self.positions, lengths=lengths, tokens=tokens)

    def _embed_documents(
        self, encoding: PositionEncoding, x: Tensor, tokens: Tensor | None, documents: Documents
    ) -> Tensor:
        if tokens is not None:
            tokens = documents.apart(tokens.unsqueeze(-1)).squeeze(-1)
        apart = documents.apart(x).masked_fill(documents.padding_mask.unsqueeze(-1), 0.0)
        embedded = encoding.embed(apart, self.positions, lengths=documents.lengths, tokens=tokens)
        return documents.together(embedded)

    def _embed_neighbours(
        self, encoding: PositionEncoding, kept: StateLayer, x: Tensor, tokens: Tensor | None
    ) -> Tensor:
        """Encode with the neighbouring tokens that the encoding depends on, cached or not."""
        length, positions = x.size(1), self.positions.expand(x.size(0), -1)
        padding = self.padding_mask
        now = {"x": x, "positions": positions}
        # After a prompt given as `inputs_embeds` the tokens would not be complete.
        if tokens is not None and (kept.state is None or "tokens" in kept.state):
            now["tokens"] = tokens
        now["padding"] = torch.zeros_like(positions, dtype=torch.bool)
        if padding is not None:
            now["padding"] = padding
        if kept.state is not None:
            now = {name: torch.cat((kept.state[name], rows), 1) for name, rows in now.items()}
        # Sort padding first, so that neighbouring tokens are adjacent.
        order = (~now["padding"]).long().argsort(dim=1, stable=True)
        window = encoding.embed_window - 1
        last = order[:, max(order.size(1) - window, 0) :]
        kept.state = {name: _rows(rows, last) for name, rows in now.items()}
        # Restore the order afterwards: padding may be anywhere among the new tokens.
        x = now["x"].masked_fill(now["padding"].unsqueeze(-1), 0.0)
        embedded = encoding.embed(
            _rows(x, order),
            with_end_of(_rows(now["positions"], order), self.positions),
            tokens=_rows(now["tokens"], order) if "tokens" in now else None,
        )
        return _rows(embedded, order.argsort(dim=1))[:, -length:]


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """Gather along the second dimension: (B, S, ...), (B, T) -> (B, T, ...)."""
    return x.take_along_dim(order if x.dim() == 2 else order.unsqueeze(-1), 1)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend for ``AttentionInterface``: (B, H, T, D) -> (B, T, H, D), and the weights or None.

    Keys and values may have fewer heads, each shared by a group of query heads.

    Raises:
        ValueError: a custom mask, an unsupported option, or keys cached elsewhere.
    """
    at = options.get(PASS_KEYWORD)
    if not isinstance(at, ForwardPass):
        raise ValueError(
            f"`{PASS_KEYWORD}` must come from the base model: a layer of a model with a replaced "
            "position encoding cannot be called alone."
        )
    if attention_mask is not None:
        raise ValueError(
            "`attention_mask` must be (B, S), 1 at tokens and 0 at padding, but is "
            f"{tuple(attention_mask.shape)} instead: the attention itself is causal."
        )
    for name in _UNSUPPORTED:
        if options.get(name) not in (None, 0):
            raise ValueError(
                f"`{name}` of an attention must be None, but is {options[name]!r} instead."
            )
    layer = module.layer_idx
    assert isinstance(layer, int)
    states = at.states
    if key.size(2) != query.size(2) or (states is not None and not states[layer].seen):
        raise ValueError(
            f"transformers {transformers.__version__} must cache keys in the states of this model, "
            "but caches them elsewhere; install a version supported by the extra `hub`."
        )
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    output, weights = at.attend(layer, query, key, value)
    return output.transpose(1, 2).contiguous(), weights


def no_mask(*args: Any, **options: Any) -> None:
    """Make no mask for ``AttentionMaskInterface``: ``attend`` knows padding and causality."""


def to_padding_mask(mask: Tensor | None, length: int) -> Tensor | None:
    """Convert a mask (B, S) of transformers to True at padding; None without padding.

    Raises:
        ValueError: another shape.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.size(1) != length:
        found = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"`attention_mask` must be (B, {length}), 1 at tokens and 0 at padding, cached tokens "
            f"included, but is {found} instead."
        )
    padding = mask == 0
    # Attention without padding is cheaper; compiled graphs cannot branch on values.
    if torch.compiler.is_compiling() or bool(padding.any()):
        return padding
    return None


def resolve_positions(
    given: Tensor | None,
    padding: Tensor | None,
    seen: int,
    length: int,
    device: torch.device,
    *,
    first: int,
) -> tuple[Tensor, Documents | None]:
    """Return positions of the new tokens (B or 1, T), and the documents of a packed row.

    By default tokens are counted, without padding on either side. Given positions may differ if
    nothing is cached; a row that restarts at 0 or at ``first`` contains packed documents. An
    exported program cannot look at given positions: it asserts that they count the tokens.

    Args:
        given: (B or 1, T), counted from ``first`` or 0, or None.
        padding: (B, S), True at padding.
        seen: S - T, number of cached tokens.
        length: T.
        device: device of the tokens.
        first: the model's index of the first position.

    Raises:
        ValueError: positions below ``first``, contradicting the cache, or several packed rows.
    """
    end = seen + length
    counted = make_positions(padding, end, device=device)[:, seen:]
    now = None if padding is None else padding[:, seen:]
    if given is None:
        return with_end(counted, end), None
    # RoBERTa's positions start at 2, but transformers' generation and its collator of packed rows
    # count from 0 there, too. Plain counting is recognised with either origin.
    differ = [_differ(given - origin, counted, now) for origin in sorted({0, first})]
    if torch.compiler.is_exporting():
        torch._assert_async(
            ~(differ[0] & differ[-1]),
            "`position_ids` of an exported model must count the tokens from 0, or from the model's "
            "first position.",
        )
        return with_end(counted, end), None
    return _read_positions(given, counted, differ, now, seen, first)


@uncompiled(
    reason="only the values of `position_ids` say whether they count the tokens; leave them out "
    "for one graph"
)
def _read_positions(
    given: Tensor,
    counted: Tensor,
    differ: list[Tensor],
    padding: Tensor | None,
    seen: int,
    first: int,
) -> tuple[Tensor, Documents | None]:
    """Resolve given positions as ``resolve_positions`` does, by their values."""
    if not all(map(bool, differ)):
        return with_end(counted, seen + given.size(1)), None
    if seen:
        raise ValueError(
            "`position_ids` must count the tokens of `attention_mask` if tokens are cached, but "
            "do not; leave them out."
        )
    if padding is not None and not bool(padding.any()):
        padding = None  # a compiled graph has a mask even where there is no padding
    later = counted > 0 if padding is None else (counted > 0) & ~padding
    origin = 0 if padding is None and bool((later & (given == 0)).any()) else first
    _check_origin(given, padding, origin)
    if bool((later & (given == origin)).any()):
        return _packed(given, padding, origin)
    # Padding may have positions before the first token's, as in RoBERTa.
    given = (given - origin).clamp(min=0)
    return with_end(given, int(given.max()) + 1), None


def _differ(given: Tensor, counted: Tensor, padding: Tensor | None) -> Tensor:
    """Return whether positions of tokens differ, a bool tensor ()."""
    differs = given != counted
    return (differs if padding is None else differs & ~padding).any()


def _check_origin(given: Tensor, padding: Tensor | None, origin: int) -> None:
    """Check that no token has a position before the first."""
    of_tokens = given if padding is None else given.masked_fill(padding, origin)
    if bool((of_tokens < origin).any()):
        raise ValueError(
            f"`position_ids` must be at least {origin}, this model's first position, but have "
            f"{int(of_tokens.min())} instead."
        )


def _packed(given: Tensor, padding: Tensor | None, origin: int) -> tuple[Tensor, Documents]:
    if padding is not None:
        raise ValueError(
            "`attention_mask` must be left out with `position_ids` of packed documents, which "
            "restart, but has padding."
        )
    if given.size(0) != 1:
        raise ValueError(
            "`position_ids` of packed documents, which restart, must have one row, but are "
            f"{tuple(given.shape)} instead."
        )
    bounds = given[0] == origin
    bounds[0] = True
    starts = bounds.nonzero().flatten()
    cu_seqlens = torch.cat((starts, starts.new_tensor([given.size(1)])))
    documents = Documents.of(cu_seqlens, given.size(1))
    if not torch.equal(documents.positions, given[0] - origin):
        raise ValueError(
            f"`position_ids` of packed documents must count from {origin} in each, but do not; for "
            "other positions pad the documents and give an `attention_mask`."
        )
    longest = documents.tokens.size(1)
    return count_positions(None, longest, given.device), documents
