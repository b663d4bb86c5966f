"""FlexAttention: position biases computed pair by pair inside the kernel, on a GPU.

Shapes: B batch, H heads, T queries, S keys, D' encoded head_dim, M values.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fairseq_plugins.attention.call import Call
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.pairwise import HasPairwiseBias, PairwiseBias
from fairseq_plugins.encodings.position_bounds import bounds_of, is_recorded, known_end
from fairseq_plugins.kernels.backend import uses_flex
from fairseq_plugins.kernels.flex import BLOCK, BlockMask, block_mask, flex_softmax, takes_features

_LARGEST_TABLE = 2**17  # positions; longer sequences may use four times their length


def gives_pairs(encoding: PositionEncoding | None) -> bool:
    """Return whether an encoding changes the logits by pairwise biases alone."""
    if encoding is None or encoding.hooks & {"relative_logits", "relative_values", "log_decay"}:
        return False
    biases = encoding.parts_with("attn_bias")
    return bool(biases) and all(isinstance(part, HasPairwiseBias) for part in biases)


def takes_pairs(q: Tensor, k: Tensor, *, causal: bool) -> bool:
    """Return whether the kernel supports the device, dtype and lengths of q and k.

    Sequences shorter than a block of the kernel are left to the dense bias, which is small.

    Args:
        q: (B, H, T, D).
        k: (B, H, S, D).
        causal: whether query s sees only keys t <= s.
    """
    queries, keys = q.size(2), k.size(2)
    fits = min(queries, keys) >= BLOCK and (not causal or queries == keys)
    return fits and uses_flex(q.device, computed_dtype(q))


def computed_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which a fused attention computes, under autocast its dtype."""
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return x.dtype


def end_of_positions(q_positions: Tensor, k_positions: Tensor) -> int | None:
    """Return an upper bound of positions (B or 1, T) and (B or 1, S), as the size of a table.

    None if positions are negative, far beyond the length, or unknown in a compiled graph. Positions
    without an attached bound are read, which waits for the device.
    """
    end = known_end(q_positions, k_positions)
    if end is None and not is_recorded(q_positions):
        lows, ends = zip(bounds_of(q_positions), bounds_of(k_positions), strict=True)
        end = max(ends) if min(lows) >= 0 else None
    largest = max(_LARGEST_TABLE, 4 * k_positions.size(1))
    return end if end is not None and end <= largest else None


def attend_by_pairs(
    parts: Sequence[PositionEncoding],
    encode: Callable[[Tensor, Tensor], Tensor],
    call: Call,
    *,
    scale: float,
    document: Tensor | None = None,
) -> Tensor | None:
    """Compute the attention's output without a (T, S) tensor; None if the kernel cannot.

    Args:
        parts: those with a bias, of an encoding for which ``gives_pairs`` is true.
        encode: encodes queries (B, H, T, D) at their positions; called if the kernel can run.
        call: of queries and keys for which ``takes_pairs`` is true, with no mask but padding.
        scale: of the logits.
        document: (T,) int64, the document of each token of a packed row; None for one sequence.

    Returns:
        (B, H, T, M); 0 for a query that sees no key.
    """
    k, v = call.state["k"], call.state["v"]
    end = end_of_positions(*call.positions)
    if end is None:
        return None
    biases = _pairwise_biases(parts, call, end)
    for bias in biases:
        k = k if bias.key_features is None else _with_features(k, bias.key_features)
    if not takes_features(k.size(-1), v.size(-1)):
        return None
    q = encode(call.q, call.q_positions)
    for bias in biases:
        q = q if bias.query_features is None else _with_features(q, bias.query_features)

    def make() -> BlockMask | None:
        padded = call.state.get("key_padding_mask")
        sizes = q.size(2), k.size(2), q.device
        return block_mask(*sizes, causal=call.causal, padded=padded, document=document)

    dtype = computed_dtype(q)
    return flex_softmax(
        q.to(dtype),
        k.to(dtype),
        v.to(dtype),
        [bias.of_pair for bias in biases if bias.of_pair is not None],
        call.shared.once(("blocks", call.causal), make),
        scale=scale,
    )


def _pairwise_biases(parts: Sequence[PositionEncoding], call: Call, end: int) -> list[PairwiseBias]:
    """Return the biases of an encoding's parts; those shared by all layers once per pass."""
    biases = []
    for part in parts:
        assert isinstance(part, HasPairwiseBias)

        def make(part: HasPairwiseBias = part) -> PairwiseBias:
            return part.pairwise_bias(*call.positions, end)

        is_shared = part.shared_across_layers
        biases.append(call.shared.once(("pairs", id(part)), make) if is_shared else make())
    return biases


def _with_features(x: Tensor, features: Tensor) -> Tensor:
    """Append features (B or 1, H, T, F) to x (B, H, T, D')."""
    return torch.cat((x, features.to(x.dtype).expand(x.size(0), -1, -1, -1)), -1)
