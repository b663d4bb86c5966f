"""Transformer-XL: sinusoids of the offset, and learned vectors in place of a query's position."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, at_least_float32
from fairseq_plugins.encodings.checks import check_even
from fairseq_plugins.encodings.frequencies import geometric
from fairseq_plugins.encodings.offsets import gather_offsets, occurring_offsets, products_by_offset
from fairseq_plugins.encodings.position_bounds import end_of, is_recorded, with_end
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import Formula, PositionTable


@register_encoding(
    "xl",
    known_as=("relative", "transformer_xl", "xlnet"),
    summary="sinusoids of the offset projected per layer, and two learned vectors per head",
    source="Transformer-XL (Dai et al. 2019), Section 3.3; Su's survey, XLNET Style",
    formula="logit ((q_s + u).k_t + (q_s + v).W_R r_(s-t)) / sqrt(D)",
)
class TransformerXL(PositionEncoding):
    """u.k_t + (q_s + v).(W_R r_{s-t}) is added to q_s.k_t.

    r_n = [sin(w_1 n), ..., cos(w_1 n), ...] (C,), w_j = 10000^(-2(j-1)/C), for offsets n of either
    sign, never clipped. Each layer has its own W_R (H D, C); all layers share u and v (H, D).
    Columns of offsets are gathered by position, since the published shift of a matrix is limited
    to consecutive positions and keys up to the query.

    Transformer-XL itself has no absolute embedding. LRPE's tables keep the framework's in every
    row, so it stays on here; ``no_token_positional_embeddings`` switches it off.

    Raises:
        ValueError: for an odd embed_dim.
    """

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        heads, dim, width = context.num_heads, context.head_dim, context.embed_dim
        check_even("embed_dim", width)
        self.table = PositionTable(Formula(_sines_and_cosines, (width,)))
        weight = torch.empty(heads * dim, width)
        nn.init.xavier_uniform_(weight, generator=context.generator)
        self.weight = nn.Parameter(weight)
        # Initialised as in the authors' code.
        u, v = 0.02 * torch.randn(2, heads, dim, generator=context.generator)
        self.u, self.v = nn.Parameter(u.clone()), nn.Parameter(v.clone())

    def share_with(self, first: PositionEncoding) -> None:
        """Use the first layer's u and v; W_R is not shared."""
        assert isinstance(first, TransformerXL)
        self.u, self.v = first.u, first.v

    def _sinusoids(self, low: int, high: int) -> Tensor:
        """Return r_n for n = low..high: (N, C), from a table for n >= 0 by symmetry."""
        offsets = torch.arange(low, high + 1, device=self.weight.device)
        if is_recorded(offsets):
            return self.table.at(offsets)
        distances = with_end(offsets.abs(), max(-low, high) + 1)
        sine, cosine = self.table(distances).chunk(2, dim=-1)
        return torch.cat((sine * offsets.sign().unsqueeze(-1), cosine), dim=-1)

    def _by_offset(self, q: Tensor, offsets: Tensor, low: int, high: int) -> Tensor:
        """Return (q + v).(W_R r_n) for every pair, in the cheaper of two orders.

        (B, H, T, D) and (B or 1, T, S) -> (B, H, T, S); offsets lie between ``low`` and ``high``.
        """
        wide = at_least_float32(q)
        rows = self._sinusoids(low, high).to(wide)
        weight = self.weight.to(wide).unflatten(0, (self.context.num_heads, -1))
        query = q + self.v.to(wide).unsqueeze(1)
        batch, heads, length, _ = q.shape
        if batch * heads * length < rows.size(-1):
            # For the few queries of a decoding step this is cheaper than projecting every offset.
            return gather_offsets((query @ weight @ rows.mT).to(q.dtype), offsets, low)
        return products_by_offset(query.to(q.dtype), (rows @ weight.mT).to(q.dtype), offsets, low)

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """Return u.k + (q + v).(W_R r) (B, H, T, S), from products for the offsets that occur.

        In a causal model later keys, which are hidden, get the terms of offset 0.
        """
        longest = self.context.max_positions
        if is_recorded(q_positions):
            for positions in (q_positions, k_positions):
                end_of(self.label, positions, longest)
        offsets, low, high = occurring_offsets(
            q_positions, k_positions, causal=self.context.causal, furthest=longest - 1
        )
        content = k @ self.u.to(k.dtype).unsqueeze(-1)
        return content.mT + self._by_offset(q, offsets, low, high)


def _sines_and_cosines(positions: Tensor, width: int) -> Tensor:
    """Return [sin(w_1 n), ..., cos(w_1 n), ...] of positions n: (N,) -> (N, width)."""
    angles = positions.unsqueeze(-1) * geometric(width // 2, width, device=positions.device)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
