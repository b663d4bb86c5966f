"""CoPE: positions counted by learned gates on the content."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, widened
from fairseq_plugins.encodings.registry import register_encoding


def contextual_positions(gates: Tensor) -> Tensor:
    """Compute p[s, t], the sum of gates from key t to the query: (..., T, S) -> (..., T, S).

    ``gates`` are 0 for hidden keys, so that p of later keys is 0.
    """
    return gates.flip(-1).cumsum(-1).flip(-1)


@register_encoding(
    "cope",
    known_as=("contextual",),
    summary="positions counted by gates on the content, with interpolated learned vectors",
    source="CoPE (Golovneva et al. 2024)",
    formula="logit (q_s.k_t + q_s.e[p]) / sqrt(D), p = sum_j sigmoid(q_s.k_j / sqrt(D)), "
    "t <= j <= s, e learned at integers, interpolated between",
)
class CoPE(PositionEncoding):
    """q_s.e[p_st] joins q_s.k_t, p_st = sum_j g_sj over the keys j from t up to s.

    The gates g_sj = sigmoid(q_s.k_j / sqrt(D)) are those of the release; the paper's equations
    leave out 1/sqrt(D) here as in the logits. q.e is interpolated between the two integers next to
    p, so that gradients reach the gates. Counts from ``num_positions - 1`` on use the last vector.

    The positions that a model passes are not used: the order of the keys says which come before a
    query, and masked keys, such as padding, are not counted. Each layer has a table e
    (num_positions, D) for all heads, initially 0, so that a model starts as one without positions.
    Time and memory are quadratic in the length.

    Args:
        num_positions: rows of e, for p = 0..num_positions - 1; 0 for one more than
            ``max_positions``, so that no count is clipped. The paper's language models have 64.

    Raises:
        ValueError: for a ``num_positions`` of 1 or below 0.
    """

    keeps_absolute_embedding = False
    is_relative = False
    reads_positions = False
    bidirectional_refusal = "its positions count the keys from a query back to an earlier one"

    def __init__(self, context: EncodingContext, *, num_positions: int = 64) -> None:
        super().__init__(context)
        if num_positions < 0 or num_positions == 1:
            raise ValueError(
                f"`num_positions` must be 0 or at least 2, but is {num_positions} instead."
            )
        self.num_positions = num_positions or context.max_positions + 1
        self.table = nn.Parameter(torch.zeros(self.num_positions, context.head_dim))
        self._hidden: Tensor | None = None

    def see_mask(self, hidden: Tensor | None) -> None:
        """Set the keys that are not counted next: (B or 1, H or 1, T or 1, S), or None."""
        self._hidden = hidden

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """Return q.e[p] (B, H, T, S), 0 for later keys; the last T keys are the queries' own."""
        queries, keys = q.size(2), k.size(2)
        gates = widened(torch.sigmoid((self.context.head_dim**-0.5 * q) @ k.mT))
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        if self._hidden is not None:
            seen = seen & ~self._hidden
        # Float32 sums: bfloat16 would stop counting at 256, float16 at 2,048.
        counted = contextual_positions(gates * seen).clamp(max=self.num_positions - 1)
        at_integers = widened(q @ self.table.to(q.dtype).mT)
        lower = counted.detach().floor().long()
        upper = (lower + 1).clamp(max=self.num_positions - 1)
        share = counted - lower
        below, above = at_integers.gather(-1, lower), at_integers.gather(-1, upper)
        return (below + share * (above - below)).masked_fill(~seen, 0.0).to(q.dtype)
