"""Randomised positions: in training, a sorted draw from a range longer than the sequence."""

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding
from fairseq_plugins.encodings.checks import length_or_longest
from fairseq_plugins.encodings.noise import Draw, draw_seed
from fairseq_plugins.encodings.position_bounds import check_not_negative, known_end, with_end
from fairseq_plugins.encodings.registry import register_composition, register_encoding

_REACH = 8  # default range, in multiples of the length of training sequences

_SOURCE = "Randomized Positional Encodings (Ruoss et al. 2023)"


def ordered_draw(noise: Tensor, count: int) -> Tensor:
    """Return the indices of the ``count`` largest of ``noise`` (N,), ascending: (count,) int64.

    For independent noise this is a uniform sample of 0..N-1 without replacement.
    """
    return noise.topk(count).indices.sort().values


@register_encoding(
    "randomised",
    known_as=("randomized", "random_positions"),
    summary="positions for other encodings, drawn from a longer range in training",
    source=_SOURCE,
    formula="i_s in place of s, i_0 < i_1 < ... drawn from 0..L-1 in training; i_s = s after",
)
class Randomised(PositionEncoding):
    """Random positions, in training, for the encodings joined to it by ``+``.

    In each pass n numbers are drawn from 0..L-1 without replacement and sorted; the token at
    position s gets the s-th. All sequences of a batch and all layers of a model share the draw; an
    attention outside a model draws its own in each pass. Alone it does nothing. A model trained on
    n tokens has then seen positions (or distances) up to L; the other encodings are built for L
    positions, and for those that follow where ``longest`` is below ``max_positions``.

    It deviates from the paper twice. The paper draws positions in evaluation too; here position s
    is s in evaluation, so that sequences can be generated token by token. Every position and
    distance below L was seen in training. The paper draws as many positions as a sequence has
    tokens; here n is a constant and a shorter sequence has the first of them, so that positions do
    not depend on the rest of the batch.

    Args:
        longest: n, tokens of the longest sequences in training; 0 for ``max_positions``. Position
            s >= n becomes L + s - n.
        reach: L, the range; 0 for eight times n.

    Raises:
        ValueError: a negative ``longest``, or a ``reach`` below it.
    """

    shared_across_layers = True
    is_relative = False
    reads_positions = False

    def __init__(self, context: EncodingContext, *, longest: int = 0, reach: int = 0) -> None:
        super().__init__(context)
        self.longest = length_or_longest("longest", longest, context)
        if reach and reach < self.longest:
            raise ValueError(
                f"`reach` must be 0 or at least longest={self.longest}, but is {reach} instead."
            )
        self._range = reach or _REACH * self.longest
        self.reach = self._range + max(0, context.max_positions - self.longest)
        self._draw = Draw()
        self._is_fresh = False

    def redraw(self, seed: int | Tensor) -> None:
        self._draw, self._is_fresh = Draw(seed), True

    def begin_pass(self) -> None:
        if not self._is_fresh:
            self.redraw(draw_seed())
        self._is_fresh = False

    def reposition(self, positions: Tensor) -> Tensor:
        """Replace positions s by the drawn ones: int64 of any shape -> the same shape.

        Raises:
            ValueError: for a negative position.
        """
        check_not_negative(self.label, positions)
        like = torch.empty((), device=positions.device)
        drawn = ordered_draw(self._draw("positions", (self._range,), like), self.longest)
        after = positions - self.longest + self._range
        index = torch.where(
            positions < self.longest, drawn[positions.clamp(max=self.longest - 1)], after
        )
        end = known_end(positions)
        return with_end(index, None if end is None else self._range + max(end - self.longest, 0))


register_composition(
    "randomised_rope",
    ("randomised", "rope"),
    summary="RoPE at positions drawn from a longer range in training",
    source=_SOURCE,
)
register_composition(
    "randomised_learned",
    ("randomised", "learned"),
    summary="a learned vector per position, at positions drawn from a longer range in training",
    source=_SOURCE,
)
