"""A depthwise convolution, which encodes positions through the zeros around a sequence."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, widened
from fairseq_plugins.encodings.checks import check_at_least
from fairseq_plugins.encodings.registry import register_encoding


def stretches_of(positions: Tensor) -> Tensor:
    """Number the stretches of consecutive positions: (B or 1, T) -> (B or 1, T).

    Padding before or after the tokens repeats the position of its neighbour, so that no stretch has
    both. Between tokens it may join a stretch: callers move it to an end, except whole passes of
    fairseq's models, whose batches have none there.
    """
    starts = nn.functional.pad(positions.diff(dim=1) != 1, (1, 0))
    return starts.cumsum(1)


def neighbour(x: Tensor, stretches: Tensor, offset: int) -> Tensor:
    """Return the vectors ``offset`` places ahead, or zero outside the same stretch.

    Vectors of another stretch have no influence, even if they are NaN, and get no gradient.

    Args:
        x: (B, T, C).
        stretches: (B or 1, T), from ``stretches_of``.
        offset: of either sign.

    Returns:
        (B, T, C).
    """
    if abs(offset) >= x.size(1):
        return torch.zeros_like(x)
    # A negative width crops: zeros enter at one end, and as many vectors leave at the other. The
    # stretch number of the zeros does not matter.
    near = nn.functional.pad(x, (0, 0, -offset, offset))
    there = nn.functional.pad(stretches, (-offset, offset))
    return near.where((there == stretches).unsqueeze(-1), 0.0)


@register_encoding(
    "cnn",
    known_as=("convolution", "conv", "cpvt"),
    summary="a zero-padded depthwise convolution of the tokens, added to them",
    source="Su's survey, CNN (Islam et al. 2020); CPVT (Chu et al. 2021)",
    formula="x_s + sum_j w_j x_(s+j), feature by feature, x = 0 outside the sequence",
)
class Convolution(PositionEncoding):
    """x_s + sum_j w_j * x_{s+j}, * feature by feature, with x = 0 beyond the sequence's ends.

    Offsets j are -(kernel_size - 1)..0 in a causal model, so that zeros come in on the left only,
    and -(kernel_size // 2)..kernel_size // 2 otherwise. The zeros tell a token how far the end is,
    within the kernel's reach. A gap between positions counts as an end; where counting starts makes
    no difference.

    Args:
        kernel_size: tokens that one output sees; 3 as in CPVT.

    Raises:
        ValueError: for a ``kernel_size`` below 2, or an even one in a model that is not causal.
    """

    keeps_absolute_embedding = False
    shared_across_layers = True

    def __init__(self, context: EncodingContext, *, kernel_size: int = 3) -> None:
        super().__init__(context)
        check_at_least(2, "kernel_size", kernel_size)
        if not context.causal and kernel_size % 2 == 0:
            raise ValueError(
                "`kernel_size` must be odd in a model that is not causal, "
                f"but is {kernel_size} instead."
            )
        before = kernel_size - 1 if context.causal else kernel_size // 2
        self.offsets = range(-before, kernel_size - before)
        self.embed_window = kernel_size
        draws = torch.rand(context.embed_dim, kernel_size, generator=context.generator)
        self.weight = nn.Parameter((2 * draws - 1) * kernel_size**-0.5)

    def embed(self, x: Tensor, positions: Tensor, **_: Tensor | None) -> Tensor:
        """Add conv(x) to x: (B, T, C) -> (B, T, C)."""
        total, stretches = torch.zeros((), device=x.device), stretches_of(positions)
        for offset, weight in zip(self.offsets, widened(self.weight).unbind(1), strict=True):
            total = total + neighbour(x, stretches, offset) * weight
        return x + total.to(x.dtype)
