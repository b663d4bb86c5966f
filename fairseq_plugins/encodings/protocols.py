"""Optional methods of encodings, as protocols.

Test the ``parts`` of an encoding with ``isinstance``: a composition implements none of them.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from fairseq_plugins.encodings.base import PositionEncoding
from fairseq_plugins.encodings.properties import ENCODED


@runtime_checkable
class Stochastic(Protocol):
    """An encoding with random values."""

    def redraw(self, seed: int | Tensor) -> None:
        """Draw the noise of all positions from one seed.

        An attention calls it before every forward pass, and with the same seed in all steps of
        one decoding. In a compiled graph the seed is a tensor () int64.
        """


@runtime_checkable
class RelativeOnAverage(Protocol):
    """A stochastic encoding whose scores depend on differences of positions on average."""

    def expected_scores(self, offset: int) -> Tensor:
        """Return W_{t-s} (H, D, D) with E[q~.k~] = q^T W k, t - s = ``offset``."""


@runtime_checkable
class FoldsBasis(Protocol):
    """An encoding that first applies one fixed linear map to all queries and keys.

    For inference the map can be folded into the weights of the projections.
    """

    def fold_basis_(self, *projections: nn.Module) -> None:
        """Multiply the map into the weights of ``projections`` (C -> C) and stop applying it."""

    def unfold_basis_(self, *projections: nn.Module) -> None:
        """Remove the map from the weights and apply it in every pass again."""


@runtime_checkable
class Repositions(Protocol):
    """An encoding that replaces, in training, the positions of the encodings composed with it."""

    reach: int
    """Upper bound of the new positions: ``max_positions`` of the other encodings."""

    def reposition(self, positions: Tensor) -> Tensor:
        """Return the positions, int64, that replace these (any shape)."""

    def redraw(self, seed: int | Tensor) -> None:
        """Draw new positions from a seed; a model calls it before every pass."""

    def begin_pass(self) -> None:
        """Draw new positions unless ``redraw`` was called since the last pass.

        A composition calls it in ``embed``, which runs before any attention could draw.
        """


@runtime_checkable
class SeesMask(Protocol):
    """An encoding whose ``relative_logits`` of a query and a key depend on other keys too."""

    def see_mask(self, hidden: Tensor | None) -> None:
        """Receive the mask of the next ``relative_logits``, without the causal mask.

        Args:
            hidden: (B or 1, H or 1, T or 1, S) bool, True where a key is hidden from a query,
                such as padding; None where none is.
        """


def reads_projections(part: PositionEncoding) -> bool:
    """Return whether an encoding uses the layer's projections."""
    return type(part).bind_projections is not PositionEncoding.bind_projections


def parts_to_fold(parts: Sequence[PositionEncoding]) -> tuple[FoldsBasis, ...]:
    """Return the one of an encoding's parts that may be folded into the projections, or none.

    It is the first part that transforms queries and keys, unless another part reads the
    untransformed queries and keys, or the projections.
    """
    first = next((part for part in parts if part.hooks & ENCODED), None)
    for part in parts:
        reads_content = "relative_logits" in part.hooks
        if part is not first and (reads_content or reads_projections(part)):
            return ()
    return (first,) if isinstance(first, FoldsBasis) else ()
