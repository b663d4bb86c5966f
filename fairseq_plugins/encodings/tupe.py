"""TUPE: separate projections for position-position and word-word scores."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, widened
from fairseq_plugins.encodings.bias import T5Bias
from fairseq_plugins.encodings.pairwise import PairwiseBias, position_at
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import check_within_table
from fairseq_plugins.kernels.flex import PairFunction

ClsToken = Literal["auto", "untied", "tied"]
ClsPair = Literal["theta_2", "theta_1"]


@register_encoding(
    "tupe_relative",
    summary="tupe with T5's bias beside the learned positions",
    source="TUPE-R (Ke et al. 2021)",
    formula="q_s.k_t / sqrt(2D) + reset(p_s U_Q.p_t U_K / sqrt(2D) + b[h, bucket(t - s)])",
    t5_bias=True,
)
@register_encoding(
    "tupe",
    known_as=("untied",),
    summary="dot products of learned positions by their own projections, added to the logits",
    source="TUPE-A (Ke et al. 2021)",
    formula="q_s.k_t / sqrt(2D) + reset(p_s U_Q.p_t U_K / sqrt(2D)), reset at [CLS]",
)
class TUPE(PositionEncoding):
    """(x_s W_Q)(x_t W_K)^T / sqrt(2D) + (p_s U_Q)(p_t U_K)^T / sqrt(2D) per head.

    p is a learned table of ``max_positions`` vectors, layer-normed as in the paper; U_Q and U_K
    are C x C without bias. All layers share them. Word embeddings have no positions added.

    [CLS], at position 0, has no meaningful position: there two learned scalars per head replace the
    positional term, T5's bias included: theta_1 where [CLS] is the query and theta_2 where it is
    the key. In the paper the pair ([CLS], [CLS]) has theta_1 too; theta_1 is then constant in its
    row, which softmax ignores, and cannot be learned. Here that pair has theta_2. Both start at 0,
    where the two forms agree. ``cls_pair=theta_1`` is the paper's form.

    ``tupe+t5`` adds a T5 bias of any size, which is not replaced at [CLS].

    Args:
        t5_bias: also add T5's bias with its default sizes.
        cls_token: ``untied`` as above; ``tied`` treats position 0 like all others, for a model
            without [CLS]; ``auto`` is ``untied`` in bidirectional models, except fairseq's
            translation models, whose first token is a word.
        cls_pair: the scalar of the pair ([CLS], [CLS]): ``theta_2`` or, as in the paper,
            ``theta_1``.

    Raises:
        ValueError: ``cls_token=untied`` in a causal model, or ``cls_pair=theta_1`` with a tied
            position 0.
    """

    shared_across_layers = True
    keeps_absolute_embedding = False
    extrapolates = False
    is_relative = False

    def __init__(
        self,
        context: EncodingContext,
        *,
        t5_bias: bool = False,
        cls_token: ClsToken = "auto",
        cls_pair: ClsPair = "theta_2",
    ) -> None:
        super().__init__(context)
        if cls_token == "untied" and context.causal:
            raise ValueError(
                "`cls_token` must be auto or tied in a causal model, which has no [CLS], "
                "but is 'untied' instead."
            )
        width, inner = context.embed_dim, context.num_heads * context.head_dim

        def draw(rows: int, columns: int) -> nn.Parameter:
            draws = torch.randn(rows, columns, generator=context.generator)
            return nn.Parameter(draws * width**-0.5)

        self.weight = draw(context.max_positions, width)
        self.norm = nn.LayerNorm(width)
        self.query_projection, self.key_projection = draw(width, inner), draw(width, inner)
        self.relative = T5Bias(context) if t5_bias else None
        has_cls = context.begins_with_cls and not context.causal
        self.untied = has_cls if cls_token == "auto" else cls_token == "untied"
        if cls_pair == "theta_1" and not self.untied:
            raise ValueError(
                "`cls_pair` must be theta_2 where position 0 is like all others (`cls_token`="
                f"{cls_token!r} in this model), but is 'theta_1' instead."
            )
        self.cls_pair = cls_pair
        if self.untied:
            self.from_cls = nn.Parameter(torch.zeros(context.num_heads))
            self.to_cls = nn.Parameter(torch.zeros(context.num_heads))

    def logit_scale(self) -> float:
        """Return 1/sqrt(2D): the sum of two dot products of D features has twice the variance."""
        return float((2 * self.context.head_dim) ** -0.5)

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return (B or 1, H, T, S) float32.

        Raises:
            ValueError: for a position beyond the table.
        """
        q = self._project(q_positions, self.query_projection)
        k = self._project(k_positions, self.key_projection)
        bias = (self.logit_scale() * q) @ k.mT
        if self.relative is not None:
            bias = bias + self.relative.attn_bias(q_positions, k_positions)
        return self._untie(bias, q_positions, k_positions) if self.untied else bias

    def pairwise_bias(self, q_positions: Tensor, k_positions: Tensor, end: int) -> PairwiseBias:
        """Return the projected positions as features, and a table for T5's bias and [CLS]."""
        q = self._project(q_positions, self.query_projection)
        k = self._project(k_positions, self.key_projection)
        if not self.untied:
            relative = self.relative and self.relative.pairwise_bias(q_positions, k_positions, end)
            return PairwiseBias(relative.of_pair if relative else None, q, k)
        q = q.masked_fill(q_positions.eq(0)[:, None, :, None], 0.0)
        k = k.masked_fill(k_positions.eq(0)[:, None, :, None], 0.0)
        return PairwiseBias(self._relative_or_cls(q_positions, k_positions, end), q, k)

    def _relative_or_cls(self, q_positions: Tensor, k_positions: Tensor, end: int) -> PairFunction:
        """Return the bias of a pair without the product of its positions."""
        heads = self.context.num_heads
        if self.relative is None:
            by_offset = widened(self.from_cls).new_zeros(heads, 2 * end - 1)
        else:
            by_offset = self.relative.bias_by_offset(end, q_positions.device)
        # Softmax ignores a constant in a row, so theta_1 is subtracted from the row of [CLS]: only
        # the pair ([CLS], [CLS]) keeps a term, whose gradient is no sum over keys that cancels.
        # One table, since a tensor with a gradient may be indexed once.
        of_key, of_query = widened(self.to_cls), widened(self.from_cls)
        scalars = torch.stack((torch.zeros_like(of_key), of_key, of_key - of_query), 1)
        table = torch.cat((scalars, by_offset), 1)
        q_at, k_at = position_at(q_positions), position_at(k_positions)
        shift = q_positions.new_full((), 2 + end, dtype=torch.int32)
        is_constant = self.cls_pair == "theta_1"

        def of_pair(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            query, key = q_at(b, q), k_at(b, k)
            column = torch.where(key == 0, 1, key - query + shift)
            column = torch.where(query == 0, 0, column)
            if not is_constant:
                column = torch.where((query == 0) & (key == 0), 2, column)
            return table[h, column]

        return of_pair

    def _project(self, positions: Tensor, projection: Tensor) -> Tensor:
        """Project positions per head: (B or 1, T) -> (B or 1, H, T, D)."""
        check_within_table(self.label, positions, self.context.max_positions)
        rows, scale, shift = (widened(x) for x in (self.weight, self.norm.weight, self.norm.bias))
        normed = F.layer_norm(rows[positions], self.norm.normalized_shape, scale, shift)
        projected = normed @ widened(projection)
        return projected.unflatten(-1, (self.context.num_heads, -1)).transpose(1, 2)

    def _untie(self, bias: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Replace row and column of position 0 in a bias (B or 1, H, T, S) by the scalars."""
        row = (q_positions.eq(0)[:, None, :, None], widened(self.from_cls))
        column = (k_positions.eq(0)[:, None, None, :], widened(self.to_cls))
        # The later of the two writes the pair that is in both.
        for is_cls, scalar in (row, column) if self.cls_pair == "theta_2" else (column, row):
            bias = torch.where(is_cls, scalar.view(1, -1, 1, 1), bias)
        return bias
