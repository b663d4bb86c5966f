"""One call of an attention: queries, and the keys and masks that they see."""

from typing import NamedTuple

from torch import Tensor

from fairseq_plugins.attention.cache import first_keys
from fairseq_plugins.attention.seeds import State
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings.position_bounds import with_end_of


def keys_of(k: Tensor, v: Tensor, positions: Tensor, padding_mask: Tensor | None) -> State:
    """Return keys and values that are not encoded yet, in the form of a state.

    Args:
        k: (B, H, S, D).
        v: (B, H, S, D).
        positions: (B or 1, S).
        padding_mask: (B, S) bool, True where padded; None for no padding.
    """
    keys = {"k": k, "v": v, "k_positions": positions}
    return keys if padding_mask is None else {**keys, "key_padding_mask": padding_mask}


def without_padding(keys: State, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors (B, H, S, ...) with zeros where keys are padded: 0 x NaN would be NaN."""
    if "key_padding_mask" not in keys:
        return tensors
    padded = keys["key_padding_mask"][:, None, :, None]
    return tuple(x.masked_fill(padded, 0.0) for x in tensors)


class Call(NamedTuple):
    """Queries, and the keys and masks that they see."""

    q: Tensor  # (B, H, T, D), not encoded
    q_positions: Tensor  # (B or 1, T)
    # Keys and values with their positions and padding (``keys_of``), not encoded yet; later what an
    # attention remembers of them.
    state: State
    causal: bool  # whether the last T keys belong to the T queries, each of which sees no later key
    shared: SharedPass  # cache of the pass
    attn_mask: Tensor | None = None  # see ``Attention.forward``

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Positions of queries (B or 1, T) and of keys (B or 1, S)."""
        return self.q_positions, self.state["k_positions"]

    @property
    def hides_later(self) -> bool:
        """Return whether a causal mask is needed; a single query, the last, sees all keys."""
        # A branch, since a comparison would be symbolic in a compiled graph.
        if self.q.size(2) == 1:
            return False
        return self.causal

    @property
    def is_masked(self) -> bool:
        """Return whether a mask besides the causal one hides keys."""
        return self.attn_mask is not None or "key_padding_mask" in self.state

    def block(self, begin: int, end: int) -> "Call":
        """Return the call of queries ``begin``..``end`` - 1 alone, and of the keys that they see.

        Its cache is empty, since results of the whole do not fit.
        """
        queries, keys = self.q.size(2), self.state["k_positions"].size(1)
        return self._replace(
            q=self.q[:, :, begin:end],
            q_positions=with_end_of(self.q_positions[:, begin:end], self.q_positions),
            state=first_keys(self.state, keys - queries + end if self.causal else keys),
            shared=SharedPass(),
        )
