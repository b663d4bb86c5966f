"""Packed documents: attention within each of several documents in one row.

Shapes: N documents, L tokens of the longest, T tokens in all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_plugins.attention.base import Attention
from fairseq_plugins.attention.positions import count_positions
from fairseq_plugins.encodings.position_bounds import with_end


@dataclass(frozen=True, eq=False)
class Documents:
    """The layout of a packed row.

    Attributes:
        tokens: (N, L) int64, indices into the row of each document's tokens; arbitrary where
            padded.
        padding_mask: (N, L) bool, True where padded.
        document: (T,) int64, the document of each token.
        positions: (T,) int64, its position in the document, from 0.
    """

    tokens: Tensor
    padding_mask: Tensor
    document: Tensor
    positions: Tensor

    @classmethod
    def of(cls, cu_seqlens: Tensor, length: int, max_seqlen: int | None = None) -> "Documents":
        """Build the layout from the cumulative lengths.

        Args:
            cu_seqlens: (N + 1,) integers: 0, the end of the first document, of the second, ..., T.
            length: T.
            max_seqlen: L. If given, values are not checked, which would wait for the device and is
                impossible in a compiled graph.

        Raises:
            ValueError: another type, shape or end, or decreasing values.
        """
        check_cu_seqlens(cu_seqlens, length, with_values=max_seqlen is None)
        bounds = cu_seqlens.long()
        lengths = bounds.diff()
        longest = int(lengths.max()) if max_seqlen is None else max_seqlen
        steps = torch.arange(longest, device=bounds.device)
        tokens = (bounds[:-1, None] + steps).clamp(max=max(length - 1, 0))
        places = torch.arange(length, device=bounds.device)
        document = torch.searchsorted(bounds[1:].contiguous(), places, right=True)
        return cls(tokens, steps >= lengths[:, None], document, places - bounds[document])

    @property
    def lengths(self) -> Tensor:
        """Lengths of the documents, (N,) int64."""
        return (~self.padding_mask).sum(1)

    def apart(self, x: Tensor) -> Tensor:
        """Unpack the row into a padded batch of documents: (1, ..., T, D) -> (N, ..., L, D)."""
        return x[0][..., self.tokens, :].movedim(-3, 0)

    def together(self, x: Tensor) -> Tensor:
        """Pack a padded batch of documents into one row: (N, ..., L, D) -> (1, ..., T, D)."""
        return x.movedim(0, -3)[..., self.document, self.positions, :].unsqueeze(0)


def check_cu_seqlens(cu_seqlens: Tensor, length: int, *, with_values: bool) -> None:
    """Check the cumulative lengths of documents in a row of ``length`` tokens.

    Args:
        cu_seqlens: (N + 1,).
        length: T.
        with_values: also check the values, which waits for the device.

    Raises:
        ValueError: another type, shape or end, or decreasing values.
    """
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"`cu_seqlens` must be int32 or int64, but is {cu_seqlens.dtype} instead.")
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2:
        raise ValueError(
            "`cu_seqlens` must be (documents + 1,) with at least one document, but is "
            f"{tuple(cu_seqlens.shape)} instead."
        )
    if not with_values:
        return
    bounds = cu_seqlens.tolist()
    if bounds[0] != 0 or bounds[-1] != length or bounds != sorted(bounds):
        raise ValueError(
            f"`cu_seqlens` must rise from 0 to the {length} tokens of the row, but is {bounds} "
            "instead."
        )


def attend_documents(
    attention: Attention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    documents: Documents,
    *,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attend within each document of a packed row; positions begin at 0 in each.

    The documents are unpacked into a batch, so that time and memory are those of N sequences of
    L tokens, unless the attention takes the packed row (``Attention.attend_packed``).

    Args:
        attention: any attention.
        q: (1, H, T, D).
        k: (1, H, T, D).
        v: (1, H, T, D).
        documents: the layout of the row.
        need_weights: also return the weights, zero between documents.

    Returns:
        (1, H, T, D), and the weights (1, H, T, T) or None.
    """
    longest = documents.tokens.size(1)
    if not need_weights:
        within = with_end(documents.positions.unsqueeze(0), longest)
        packed = attention.attend_packed(q, k, v, positions=within, document=documents.document)
        if packed is not None:
            return packed, None
    q, k, v = (documents.apart(x) for x in (q, k, v))
    positions = count_positions(None, longest, q.device)
    output, weights = attention(
        q,
        k,
        v,
        q_positions=positions,
        k_positions=positions,
        key_padding_mask=documents.padding_mask,
        need_weights=need_weights,
    )
    if weights is not None:  # (N, H, L, L) -> (1, H, T, T)
        same = documents.document[:, None] == documents.document
        weights = documents.together(weights)[..., documents.positions].where(same, 0.0)
    return documents.together(output), weights
