"""FIRE: a learned function of the distance, relative to the query's position."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import (
    EncodingContext,
    PositionEncoding,
    relative_positions,
    widened,
)
from fairseq_plugins.encodings.checks import check_at_least
from fairseq_plugins.encodings.pairwise import PairwiseBias, position_at
from fairseq_plugins.encodings.position_bounds import check_not_negative
from fairseq_plugins.encodings.registry import register_encoding

_LEAST = 1e-30  # of c and L, so that neither overflows in float32


def psi(distance: Tensor, rate: Tensor) -> Tensor:
    """Compute FIRE's function log(c n + 1) of distances n >= 0, any shape, with c > 0, (1,)."""
    return torch.log1p(rate * distance)


def piecewise_linear(
    first_weight: Tensor, first_bias: Tensor, second_weight: Tensor, second_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a network of one input x in 0..1 as a piecewise linear function.

    second_weight relu(first_weight x + first_bias) + second_bias is linear between the points
    where a hidden unit changes its sign.

    Args:
        first_weight: (N,).
        first_bias: (N,).
        second_weight: (H, N).
        second_bias: (H,).

    Returns:
        The points (N,) in order; the slopes of the pieces between them, (H, N + 1); and the
        values of these lines at x = 0, (H, N + 1).
    """
    with torch.no_grad():
        # Points outside of 0..1, or without a finite value, need no piece of their own.
        points = torch.nan_to_num(-first_bias / first_weight, nan=2.0).clamp(-1.0, 2.0).sort()[0]
        ends = points.new_tensor([-1.0]), points, points.new_tensor([2.0])
        between = torch.cat(ends[:2]).add(torch.cat(ends[1:])) / 2
        is_positive = between.unsqueeze(-1) * first_weight + first_bias > 0
    # Sums instead of matrix products, which autocast would compute in half precision.
    slopes = (second_weight.unsqueeze(1) * (first_weight * is_positive)).sum(-1)
    values = (second_weight.unsqueeze(1) * (first_bias * is_positive)).sum(-1)
    return points, slopes, values + second_bias.unsqueeze(1)


def points_below(points: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that counts the points (N,), in order, below a number, by bisection."""
    steps = [2**i for i in reversed(range(len(points).bit_length()))]
    padded = nn.functional.pad(points, (0, 2 * steps[0] - 1 - len(points)), value=math.inf)

    def count(x: Tensor) -> Tensor:
        below = torch.zeros_like(x, dtype=torch.int32)
        for step in steps:
            below = below + step * (padded[below + (step - 1)] < x).int()
        return below

    return count


@register_encoding(
    "fire",
    known_as=("functional", "progressive_interpolation"),
    summary="a small network of the distance divided by the query's position",
    source="FIRE (Li et al. 2023)",
    formula="logit + f_h(psi(|t - s|) / psi(max(L, s, t))), psi(n) = log(c n + 1), "
    "f a network with one hidden layer, c and L learned",
)
class Fire(PositionEncoding):
    """logits + f(psi(s - t) / psi(max(L, s))), added after scaling; f of 1, 32 and H units, relu.

    The network's input is in 0..1 for every pair at any length (progressive interpolation). So it
    is relative only for queries before L; from there on, a distance counts for less the later the
    query is.

    The paper is about causal models. In other directions the larger of the two positions replaces
    s, which equals the paper's formula for keys up to the query and keeps the input in 0..1.

    Args:
        hidden: units of the network's hidden layer.
        rate: initial c; 0.1 in the paper. Its logarithm is learned, to keep c positive; the
            release takes absolute values.
        threshold: initial L, learned likewise; 0 for a quarter of ``max_positions``, as the
            paper's 512 at 2,048 tokens.
        shared: one network, c and L for all layers (FIRE-S), in place of one per layer.

    Raises:
        ValueError: for a ``hidden`` below 1, or a ``rate`` or a ``threshold`` (except 0) outside
            1e-30..1e30, where float32 would overflow.
    """

    keeps_absolute_embedding = False
    is_relative = False

    def __init__(
        self,
        context: EncodingContext,
        *,
        hidden: int = 32,
        rate: float = 0.1,
        threshold: float = 0.0,
        shared: bool = False,
    ) -> None:
        super().__init__(context)
        check_at_least(1, "hidden", hidden)
        for name, value in (("rate", rate), ("threshold", threshold or 1.0)):
            if not _LEAST <= value <= 1 / _LEAST:
                raise ValueError(
                    f"`{name}` must be from {_LEAST:g} to {1 / _LEAST:g}, but is {value} instead."
                )
        self.shared = shared
        threshold = threshold or max(context.max_positions / 4, 1.0)
        self.log_rate = nn.Parameter(torch.tensor([math.log(rate)]))
        self.log_threshold = nn.Parameter(torch.tensor([math.log(threshold)]))
        # Initialised as nn.Linear: uniform, scaled by the number of inputs.
        self.first_weight, self.first_bias = self._uniform(1, hidden), self._uniform(1, hidden)
        self.second_weight = self._uniform(hidden, context.num_heads, hidden)
        self.second_bias = self._uniform(hidden, context.num_heads)

    def _uniform(self, inputs: int, *shape: int) -> nn.Parameter:
        draws = torch.rand(*shape, generator=self.context.generator)
        return nn.Parameter((2 * draws - 1) * inputs**-0.5)

    def share_with(self, first: PositionEncoding) -> None:
        """Use the first layer's parameters if ``shared``."""
        assert isinstance(first, Fire)
        if self.shared:
            for name, parameter in first.named_parameters():
                setattr(self, name, parameter)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name in ("log_rate", "log_threshold"):
            saved = state_dict.get(prefix + name)
            if saved is not None and not saved.dim():  # scalars in older checkpoints
                state_dict[prefix + name] = saved.unsqueeze(0)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def network(self, x: Tensor) -> Tensor:
        """Apply f: (...) -> (..., H)."""
        inner = torch.relu(x.unsqueeze(-1) * widened(self.first_weight) + widened(self.first_bias))
        second = widened(self.second_weight), widened(self.second_bias)
        return nn.functional.linear(inner, *second)

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return (B or 1, H, T, S) float32."""
        for positions in (q_positions, k_positions):
            check_not_negative(self.label, positions)
        rate, threshold = self._rate_and_threshold()
        distance = relative_positions(q_positions, k_positions).abs()
        reached = torch.maximum(q_positions.unsqueeze(-1), k_positions.unsqueeze(-2))
        longest = torch.maximum(reached.to(rate.dtype), threshold)
        x = psi(distance.to(rate.dtype), rate) / psi(longest, rate)
        return self.network(x).movedim(-1, 1)

    def pairwise_bias(self, q_positions: Tensor, k_positions: Tensor, end: int) -> PairwiseBias:
        """Compute ``attn_bias`` from a table of psi and the network's pieces."""
        rate, threshold = self._rate_and_threshold()
        steps = torch.arange(end, dtype=rate.dtype, device=rate.device)
        distances, longest = psi(steps, rate), psi(torch.maximum(steps, threshold), rate)
        points, slopes, values = piecewise_linear(
            widened(self.first_weight),
            widened(self.first_bias),
            widened(self.second_weight),
            widened(self.second_bias),
        )
        piece_of = points_below(points)
        q_at, k_at = position_at(q_positions), position_at(k_positions)

        def of_pair(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            query, key = q_at(b, q), k_at(b, k)
            x = distances[(key - query).abs()] / longest[torch.maximum(query, key)]
            piece = piece_of(x)
            return slopes[h, piece] * x + values[h, piece]

        return PairwiseBias(of_pair)

    def _rate_and_threshold(self) -> tuple[Tensor, Tensor]:
        """Return the rate c and the threshold L, each (1,)."""
        return widened(self.log_rate).exp(), widened(self.log_threshold).exp()
