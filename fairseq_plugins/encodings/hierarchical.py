"""Su's hierarchical decomposition of a learned table: n^2 positions out of n vectors."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.absolute import Absolute
from fairseq_plugins.encodings.base import EncodingContext, widened
from fairseq_plugins.encodings.position_bounds import end_of
from fairseq_plugins.encodings.registry import register_encoding


def decomposed(table: Tensor, alpha: float) -> Tensor:
    """Decompose a trained table p into the vectors u: (n, C) -> (n, C) (Su).

    u_j = (p_j - alpha p_0) / (1 - alpha), from which ``combined`` restores p_0, ..., p_{n-1}.
    """
    return (table - alpha * table[:1]) / (1 - alpha)


def combined(vectors: Tensor, alpha: float, positions: Tensor) -> Tensor:
    """Return p_{i n + j} = alpha u_i + (1 - alpha) u_j: (n, C), (...) below n^2 -> (..., C)."""
    size = len(vectors)
    return alpha * vectors[positions // size] + (1 - alpha) * vectors[positions % size]


@register_encoding(
    "hierarchical",
    summary="n^2 positions out of n learned vectors, added to the tokens",
    source="Su's survey, Trainable: hierarchical decomposition",
    formula="x_s + alpha u_i + (1 - alpha) u_j, s = i n + j, n learned vectors u",
)
class Hierarchical(Absolute):
    """p_{i n + j} = alpha u_i + (1 - alpha) u_j with 0 <= i, j < n, for positions below n^2.

    Su derives u from a trained table. So does a ``pe_roberta`` or ``pe_transformer_lm`` that starts
    from a checkpoint with ``learned`` (``init_from``), with ``table_size`` at most that table's
    rows. Otherwise u is drawn from N(0, 1/C) like the table of ``learned``. In both cases u is
    trained.

    Args:
        alpha: weight of the coarse index i; at 1/2, i n + j and j n + i would be one vector.
        table_size: n, vectors in the table; 0 for ``max_positions``.

    Raises:
        ValueError: for an ``alpha`` outside (0, 1) or at 1/2, or a ``table_size`` whose square
            does not reach ``max_positions``.
    """

    def __init__(
        self, context: EncodingContext, *, alpha: float = 0.4, table_size: int = 0
    ) -> None:
        super().__init__(context)
        if not 0 < alpha < 1 or alpha == 0.5:
            raise ValueError(
                f"`alpha` must be between 0 and 1, other than 0.5, but is {alpha} instead."
            )
        longest = context.max_positions
        if table_size < 0 or (table_size and table_size**2 < longest):
            raise ValueError(
                f"`table_size` must be 0, or its square at least max_positions={longest}, "
                f"but is {table_size} instead."
            )
        self.alpha, self.table_size = alpha, table_size or longest
        self.extrapolates = self.table_size**2 > longest
        weight = torch.randn(self.table_size, context.embed_dim, generator=context.generator)
        self.weight = nn.Parameter(weight * context.embed_dim**-0.5)

    def rows(self, positions: Tensor) -> Tensor:
        """Return the vectors p_s: (B or 1, T) -> (B or 1, T, C).

        Raises:
            ValueError: for a position from n^2 on.
        """
        size, end = self.table_size, self.table_size**2
        reached = end_of(self.label, positions, end)
        if reached > end:
            raise ValueError(
                f"`positions` must be below {end}, the square of table_size={size} "
                f"(max_positions={self.context.max_positions}), but reach {reached - 1}; "
                "train with a larger `table_size`."
            )
        return combined(widened(self.weight), self.alpha, positions)
