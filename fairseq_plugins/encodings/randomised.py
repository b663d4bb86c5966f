"""Randomised positions: in training, an ordered draw from a longer range than the sequence's."""

import torch
from torch import Tensor

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding
from fairseq_plugins.encodings.noise import Draw, draw_seed
from fairseq_plugins.encodings.position_bounds import check_not_negative, known_end, with_end
from fairseq_plugins.encodings.registry import register_composition, register_encoding

_TIMES = 8  # the default range, in lengths of the training's sequences

_SOURCE = "Randomized Positional Encodings (Ruoss et al. 2023)"


def ordered_draw(noise: Tensor, count: int) -> Tensor:
    """The places of the ``count`` largest of ``noise`` (N,), ascending: (count,) int64.

    Of independent noise that is a subset of 0..N-1 drawn uniformly without replacement.
    """
    return noise.topk(count).indices.sort().values


@register_encoding(
    "randomised",
    known_as=("randomized", "random_positions"),
    summary="others beside it get positions drawn from a longer range in training",
    source=_SOURCE,
    formula="i_s in place of s, i_0 < i_1 < ... drawn from 0..L-1 in training; i_s = s after",
)
class Randomised(PositionEncoding):
    """The encodings that it is joined to by ``+`` see drawn positions while a model is trained.

    Once per pass a subset of 0..L-1 with n elements is drawn without replacement and sorted; the
    token at position s is given its element s. All sequences of a batch and all layers have the
    same draw. Alone it does nothing.

    Its purpose is that positions (or distances) up to L are known from training on sequences of n
    tokens. The others are built for L positions, so that a learned table has a row for each.

    Deviations from the paper: it draws in evaluation too, as many positions as the sequence has;
    here evaluation is deterministic, position s is s, of which every one and every distance below
    L was seen in training. A sequence cannot grow token by token, as in generation, where
    positions depend on its final length. And it draws as many positions in training as a sequence
    has tokens; here n is a constant and a shorter sequence has the first of them, since
    positions must not depend on what else is in a batch. In a language model all have n.

    Args:
        context: of the model.
        longest: n, tokens of the longest sequences in training; 0 for ``max_positions``. Positions
            from n on follow the range one by one.
        reach: L, the range; 0 for eight times n.

    Raises:
        ValueError: a negative ``longest``, or a ``reach`` below it.
    """

    shared_across_layers = True
    is_relative = False
    reads_positions = False

    def __init__(self, context: EncodingContext, *, longest: int = 0, reach: int = 0) -> None:
        super().__init__(context)
        if longest < 0:
            raise ValueError(
                f"`longest` must be positive, or 0 for max_positions={context.max_positions}, "
                f"but is {longest} instead."
            )
        self.longest = longest or context.max_positions
        if reach and reach < self.longest:
            raise ValueError(
                f"`reach` must be 0 or at least longest={self.longest}, but is {reach} instead."
            )
        self.reach = reach or _TIMES * self.longest
        self._draw = Draw()
        self._is_fresh = False

    def redraw(self, seed: int | Tensor) -> None:
        self._draw, self._is_fresh = Draw(seed), True

    def begin_pass(self) -> None:
        if not self._is_fresh:
            self.redraw(draw_seed())
        self._is_fresh = False

    def reposition(self, positions: Tensor) -> Tensor:
        """i_s of this draw at positions s: int64 of any shape -> the same shape.

        Raises:
            ValueError: for a negative position.
        """
        check_not_negative(self.label, positions)
        like = torch.empty((), device=positions.device)
        drawn = ordered_draw(self._draw("positions", (self.reach,), like), self.longest)
        after = positions - self.longest + self.reach
        index = torch.where(
            positions < self.longest, drawn[positions.clamp(max=self.longest - 1)], after
        )
        end = known_end(positions)
        return with_end(index, None if end is None else self.reach + max(end - self.longest, 0))


register_composition(
    "randomised_rope",
    ("randomised", "rope"),
    summary="RoPE at positions drawn from a longer range in training",
    source=_SOURCE,
)
register_composition(
    "randomised_learned",
    ("randomised", "learned"),
    summary="a learned vector for each position of a range that training draws from",
    source=_SOURCE,
)
