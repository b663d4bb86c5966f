"""Softmax attention whose kernel computes the bias of each pair, by PyTorch's FlexAttention.

Neither logits nor biases are stored, so that memory is linear in the length.

Shapes: B batch, H heads, T queries, S keys, D features, M values.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

PairFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A function of the indices of a batch row, a head, a query and a key, () each: a value ()."""

BLOCK = 128  # queries, and keys, of a block that is skipped or computed as a whole
_MIN_FEATURES, _MAX_FEATURES = 16, 256  # of the compiled kernel
# Each bias, mask, dtype and kind of sizes needs a compiled kernel. Beyond this many, PyTorch would
# compute all logits; its default limit of 8 is meant for one function, and all share this one.
_MAX_KERNELS = 64


def takes_features(*features: int) -> bool:
    """Return whether the kernel is compiled for these numbers of features, D and M."""
    return min(features) >= _MIN_FEATURES and max(features) <= _MAX_FEATURES


def flex_softmax(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    biases: Sequence[PairFunction],
    mask: BlockMask | None,
    *,
    scale: float,
) -> Tensor:
    """Compute ``softmax(scale q k^T + biases) v``; 0 for a query that sees no key.

    On a CPU, for tests, PyTorch's own reference runs, which stores all logits.

    Args:
        q: (B, H, T, D).
        k: (B, H, S, D).
        v: (B, H, S, M).
        biases: the terms added to the logits, each a function of a pair.
        mask: the visible pairs; None for all.
        scale: factor on the products.

    Returns:
        (B, H, T, M).
    """
    terms = tuple(biases)

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for term in terms:
            score = score + term(b, h, i, j)
        return score

    options: dict[str, Any] = {"score_mod": add, "block_mask": mask, "scale": scale}
    if q.device.type == "cpu" or torch.compiler.is_compiling():
        return flex_attention(q, k, v, **options)
    with torch._dynamo.config.patch(recompile_limit=_MAX_KERNELS):
        return _compiled()(q, k, v, **options)


@lru_cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def block_mask(
    queries: int,
    keys: int,
    device: torch.device,
    *,
    causal: bool = False,
    padded: Tensor | None = None,
    document: Tensor | None = None,
) -> BlockMask | None:
    """Return the mask of visible pairs, built from blocks without a (T, S) matrix.

    Args:
        queries: T.
        keys: S.
        device: of the mask.
        causal: whether a query sees the keys up to its own index only.
        padded: (B, S) bool, True where a key is padded.
        document: (T,) int64, in order; a query sees the keys of its own document only, and T is S.
    """
    if not causal and padded is None and document is None:
        return None
    first_query, last_query = _ends(queries, device)
    first_key, last_key = _ends(keys, device)
    # For every block: whether some pair may be visible, and whether all pairs surely are. Blocks
    # that reach beyond the last query or key are never whole.
    some = torch.ones(len(first_query), len(first_key), dtype=torch.bool, device=device)
    whole = (last_query < queries)[:, None] & (last_key < keys)
    if causal:
        some, whole = (
            some & (first_key <= last_query[:, None]),
            whole & (last_key <= first_query[:, None]),
        )
    if document is not None:
        first, last = document[first_query], document[last_query.clamp(max=queries - 1)]
        some = some & (first <= last[:, None]) & (last >= first[:, None])
        whole = whole & (first == last[:, None]) & (last == first[:, None])
    if padded is not None:
        of_block = F.pad(padded, (0, -keys % BLOCK), value=True).unflatten(1, (-1, BLOCK))
        some = some & ~of_block.all(-1)[:, None]
        whole = whole & ~of_block.any(-1)[:, None]
    some, whole = (
        x.expand(1 if padded is None else len(padded), *x.shape[-2:]) for x in (some, whole)
    )
    return BlockMask.from_kv_blocks(
        *_block_indices(some & ~whole),
        *_block_indices(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=_visible(causal, padded, document),
        seq_lengths=(queries, keys),
    )


def _ends(length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the index of the first and last token of every block; the last may not exist."""
    first = torch.arange(0, length, BLOCK, device=device)
    return first, first + (BLOCK - 1)


def _block_indices(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number and the indices of each row's blocks: (B, rows, columns) bool -> int32."""
    flags = blocks.unsqueeze(1).int()
    order = torch.argsort(flags, dim=-1, descending=True, stable=True)
    return flags.sum(-1, dtype=torch.int32), order.int()


def _visible(causal: bool, padded: Tensor | None, document: Tensor | None) -> PairFunction:
    """Return the function that says whether a query sees a key, for partly visible blocks."""
    conditions: list[PairFunction] = []
    if causal:
        conditions.append(lambda b, h, i, j: j <= i)
    if padded is not None:
        conditions.append(lambda b, h, i, j: ~padded[b, j])
    if document is not None:
        conditions.append(lambda b, h, i, j: document[i] == document[j])
    parts = tuple(conditions)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        is_visible = parts[0](b, h, i, j)
        for part in parts[1:]:
            is_visible = is_visible & part(b, h, i, j)
        return is_visible

    return visible
