"""One pass through a model of transformers: where its tokens are, and what attends to them.

Shapes: B batch, H heads, T tokens of this pass, S tokens with those before, D head_dim, C width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from fairseq_plugins.attention import Attention, make_positions
from fairseq_plugins.attention import base as attention_base
from fairseq_plugins.attention.documents import Documents, attend_documents
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.ends import known_end, with_end
from fairseq_plugins.integrations.huggingface.cache import StateLayer

# Options of AttentionInterface that change the attention itself.
_UNSUPPORTED = ("position_bias", "s_aux", "sliding_window", "softcap")
PASS_KEYWORD = "position_pass"  # the keyword by which layers hand a pass down to their attentions


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """What the layers of one pass have in common.

    Attributes:
        attentions: one for each layer.
        inputs: what acts on the layers' inputs, by the layer's index.
        positions: (B or 1, T) int64, or of the longest document (1, L).
        padding_mask: (B, T) bool, True where padded; None where nothing is.
        states: of a cache, one for each layer, and one of the input where there is one more.
        documents: of a packed row; None where every row is one sequence.
        shared: what the layers compute once; None where activations are computed again.
        need_weights: whether attentions are to give their weights.
        seed: of the draws of all passes of one generation; None for new draws.
    """

    attentions: nn.ModuleList
    inputs: Mapping[int, PositionEncoding]
    positions: Tensor
    padding_mask: Tensor | None
    states: list[StateLayer] | None
    documents: Documents | None
    shared: SharedPass | None
    need_weights: bool
    seed: int | None = None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
        """(B, H, T, D) each -> (B, H, T, D), and the weights or None."""
        attention = self.attentions[layer]
        assert isinstance(attention, Attention)
        if self.seed is None:
            return self._attend(attention, layer, q, k, v)
        # The same draws in every pass of a generation, and no effect on how tokens are sampled.
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
        result: tuple[Tensor, Tensor | None] = attention(
            q,
            k,
            v,
            q_positions=self.positions,
            k_positions=self.positions,
            key_padding_mask=self.padding_mask,
            need_weights=self.need_weights,
            shared=self.shared,
        )
        return result

    def embed(self, layer: int, x: Tensor, tokens: Tensor | None = None) -> Tensor:
        """The input of a layer with what acts on it: (B, T, C) -> (B, T, C).

        Args:
            layer: its index; the input of the first are the token embeddings.
            x: (B, T, C).
            tokens: (B, T), the words where they are known.
        """
        if layer not in self.inputs:
            return x
        encoding = self.inputs[layer]
        if self.documents is not None:
            return self._embed_documents(encoding, x, tokens, self.documents)
        if self.states is not None and encoding.embed_window > 1:
            return self._embed_behind(encoding, self.states[-1], x, tokens)
        lengths = torch.full((x.size(0),), x.size(1), device=x.device)
        if self.padding_mask is not None:
            lengths = (~self.padding_mask).sum(1)
            # Its embedding need not be zero here, and an encoding may look at what is beside.
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

    def _embed_behind(
        self, encoding: PositionEncoding, kept: StateLayer, x: Tensor, tokens: Tensor | None
    ) -> Tensor:
        """With the tokens before that the encoding looks at, which are kept as they came."""
        length, positions = x.size(1), self.positions.expand(x.size(0), -1)
        padding = self.padding_mask
        now = {"x": x, "positions": positions}
        if tokens is not None:
            now["tokens"] = tokens
        now["padding"] = torch.zeros_like(positions, dtype=torch.bool)
        if padding is not None:
            now["padding"] = padding
        if kept.state is not None:
            now = {name: torch.cat((kept.state[name], rows), 1) for name, rows in now.items()}
        # Padding first, so that the neighbours of a token are beside it.
        order = (~now["padding"]).long().argsort(dim=1, stable=True)
        window = encoding.embed_window - 1
        last = order[:, max(order.size(1) - window, 0) :]
        kept.state = {name: _rows(rows, last) for name, rows in now.items()}
        # In their order, for a padded token in the new ones is somewhere among them.
        x = now["x"].masked_fill(now["padding"].unsqueeze(-1), 0.0)
        end = known_end(self.positions)
        embedded = encoding.embed(
            _rows(x, order),
            with_end(_rows(now["positions"], order), end),
            tokens=_rows(now["tokens"], order) if "tokens" in now else None,
        )
        return _rows(embedded, order.argsort(dim=1))[:, -length:]


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """Along the second dimension: (B, S, ...), (B, T) -> (B, T, ...)."""
    index = order if x.dim() == 2 else order.unsqueeze(-1).expand(-1, -1, x.size(2))
    return x.gather(1, index)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend for ``AttentionInterface``: (B, H, T, D) -> (B, T, H, D), and the weights or None.

    Keys and values may have fewer heads, each for a group of queries' heads.

    Raises:
        ValueError: a mask of the caller's own, an option that would be ignored, or keys that were
            cached outside of the states.
    """
    at = options.get(PASS_KEYWORD)
    if not isinstance(at, ForwardPass):
        raise ValueError(
            f"`{PASS_KEYWORD}` must come from the model whose position encoding was replaced: a "
            "layer of it cannot be called by itself."
        )
    if attention_mask is not None:
        raise ValueError(
            "`attention_mask` must be (B, S), 1 where a token counts, but is "
            f"{tuple(attention_mask.shape)} instead: causality is the attention's own."
        )
    for name in _UNSUPPORTED:
        if options.get(name) is not None:
            raise ValueError(
                f"`{name}` of an attention must be None, but is {options[name]!r} instead."
            )
    layer = module.layer_idx
    assert isinstance(layer, int)
    states = at.states
    if key.size(2) != query.size(2) or (states is not None and not states[layer].seen):
        raise ValueError(
            f"transformers {transformers.__version__} must cache keys in the states of this model, "
            "but caches them elsewhere; install a version that the extra `hub` allows."
        )
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    output, weights = at.attend(layer, query, key, value)
    return output.transpose(1, 2).contiguous(), weights


def no_mask(*args: Any, **options: Any) -> None:
    """Build no mask for ``AttentionMaskInterface``: ``attend`` gets the padding from its pass."""


def to_padding_mask(mask: Tensor | None, length: int) -> Tensor | None:
    """A mask (B, S) of transformers as ours, True where padded; None where nothing is.

    Raises:
        ValueError: of another shape.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.size(1) != length:
        found = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"`attention_mask` must be (B, {length}), 1 where a token counts, also of those in "
            f"the cache, but is {found} instead."
        )
    padding = mask == 0
    # Whether anything is hidden makes attention cheaper; a compiled graph cannot ask.
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
    """Positions of the new tokens (B or 1, T), and the documents of a packed row.

    They are counted: padding has none, on whichever side it is. Those that are given may say
    otherwise where nothing is cached: a row that begins again at 0 or at ``first`` is packed.

    Args:
        given: (B or 1, T), from ``first``, or None.
        padding: (B, S), True where padded.
        seen: S - T.
        length: T.
        device: of the tokens.
        first: what the model calls the position of a first token.

    Raises:
        ValueError: given ones before ``first`` or that contradict a cache, or several packed rows.
    """
    end = seen + length
    counted = make_positions(padding, end, device=device)[:, seen:]
    now = None if padding is None else padding[:, seen:]
    if given is None or torch.compiler.is_compiling():
        return with_end(counted, end), None
    # RoBERTa's begin at 2, but transformers counts from 0 there too, in generation and in its
    # collator of packed rows. What merely counts, in a row or a document, says itself from where.
    if any(_agree(given - origin, counted, now) for origin in (0, first)):
        return with_end(counted, end), None
    if seen:
        raise ValueError(
            "`position_ids` must count the tokens that `attention_mask` shows where tokens are "
            "cached, but do not; leave them out."
        )
    origin = 0 if now is None and bool((given[:, 1:] == 0).any()) else first
    _check_origin(given, now, origin)
    if now is None and bool((given[:, 1:] == origin).any()):
        return _packed(given, origin)
    # What is padded may come before the first token, as in RoBERTa.
    given = (given - origin).clamp(min=0)
    return with_end(given, int(given.max()) + 1), None


def _agree(given: Tensor, counted: Tensor, padding: Tensor | None) -> bool:
    differs = given != counted
    return not bool((differs if padding is None else differs & ~padding).any())


def _check_origin(given: Tensor, padding: Tensor | None, origin: int) -> None:
    """Refuse a token before the first: it would be elsewhere than the caller thinks."""
    of_tokens = given if padding is None else given.masked_fill(padding, origin)
    if bool((of_tokens < origin).any()):
        raise ValueError(
            f"`position_ids` must be at least {origin}, where this model counts from, but have "
            f"{int(of_tokens.min())} instead."
        )


def _packed(given: Tensor, origin: int) -> tuple[Tensor, Documents]:
    if given.size(0) != 1:
        raise ValueError(
            "`position_ids` that begin again, of packed documents, must be one row, but are "
            f"{tuple(given.shape)} instead."
        )
    bounds = given[0] == origin
    bounds[0] = True
    starts = bounds.nonzero().flatten()
    cu_seqlens = torch.cat((starts, starts.new_tensor([given.size(1)])))
    documents = Documents.of(cu_seqlens, given.size(1))
    if not torch.equal(documents.positions, given[0] - origin):
        raise ValueError(
            f"`position_ids` of packed documents must count from {origin} in each, but do not; pad "
            "them and give an `attention_mask` for other positions."
        )
    longest = documents.tokens.size(1)
    return with_end(make_positions(None, longest, device=given.device), longest), documents


def sample_positions(
    position_sampler: PositionEncoding | None, positions: Tensor, *, training: bool
) -> Tensor:
    """The positions that encodings are given: in training drawn ones, where a name draws them."""
    if position_sampler is None or not training:
        return positions
    position_sampler.redraw(attention_base.draw_seed())  # type: ignore[operator]
    sampled: Tensor = position_sampler.reposition(positions)  # type: ignore[operator]
    return sampled
