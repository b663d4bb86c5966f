"""What few encodings can do beside their hooks. Whoever needs it asks the parts of an encoding."""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from fairseq_plugins.encodings.base import PositionEncoding
from fairseq_plugins.encodings.properties import ENCODED


@runtime_checkable
class Stochastic(Protocol):
    """An encoding whose values are drawn."""

    def redraw(self, seed: int | Tensor) -> None:
        """Fix the noise: one seed, one draw, at all positions.

        An attention calls this before every forward pass, and again with the same seed in the
        steps of one decoding. In a compiled graph the seed is in a tensor () int64.
        """


@runtime_checkable
class RelativeOnAverage(Protocol):
    """A stochastic encoding whose scores depend on differences of positions on average."""

    def expected_scores(self, offset: int) -> Tensor:
        """W_{t-s} (H, D, D) with E[q~.k~] = q^T W k, t - s = ``offset``."""


@runtime_checkable
class FoldsBasis(Protocol):
    """An encoding that does the same to queries and keys at every position, before all else.

    For inference the weights of the projections can do it, where nothing stands between.
    """

    def fold_basis_(self, *projections: nn.Module) -> None:
        """Move it into the weights of ``projections`` (C -> C), and do it no more."""

    def unfold_basis_(self, *projections: nn.Module) -> None:
        """Take it out of their weights again, and do it as before."""


@runtime_checkable
class Repositions(Protocol):
    """An encoding that says which positions the others beside it are given in training."""

    reach: int
    """Positions are below it: the others are built for so many."""

    def reposition(self, positions: Tensor) -> Tensor:
        """Other positions, int64, in place of these (any shape)."""

    def redraw(self, seed: int | Tensor) -> None:
        """As of a stochastic encoding: a model does it before every pass."""

    def begin_pass(self) -> None:
        """Draw by itself where nobody called ``redraw`` since the last pass.

        A composition calls it where it embeds: no attention draws for that.
        """


@runtime_checkable
class SeesMask(Protocol):
    """An encoding whose ``relative_logits`` of a pair depend on the keys beside it, too."""

    def see_mask(self, hidden: Tensor | None) -> None:
        """Be told before ``relative_logits`` what is hidden beside the future of a causal model.

        Args:
            hidden: (B or 1, H or 1, T or 1, S) bool, True where a query does not see a key, as
                padding; None where nothing is.
        """


def parts_to_fold(encoding: PositionEncoding) -> tuple[FoldsBasis, ...]:
    """The part of an encoding whose basis the projections may hold, if there is one.

    It is the first that transforms queries and keys, where no other part reads them, or the
    projections, as they were.
    """
    first = next((part for part in encoding.parts if part.hooks & ENCODED), None)
    for part in encoding.parts:
        reads_content = "relative_logits" in part.hooks
        binds = type(part).bind_projections is not PositionEncoding.bind_projections
        if part is not first and (reads_content or binds):
            return ()
    return (first,) if isinstance(first, FoldsBasis) else ()
