"""Encodings that compute each position's vector from the one before: a GRU and an ODE."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fairseq_plugins.common.extras import remedy
from fairseq_plugins.encodings.absolute import Absolute
from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, widened
from fairseq_plugins.encodings.position_bounds import end_of
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.uncompiled import uncompiled

Method = Literal["euler", "midpoint", "rk4", "dopri5", "dopri8"]


class Trajectory(Absolute):
    """Base class: p_0, p_1, ... computed one after the other up to the largest position.

    Nothing is cached between calls, since parameters may change: a decoding step at position s
    costs s steps of the recursion.
    """

    def trajectory(self, count: int) -> Tensor:
        """Return p_0 to p_{count-1}: (count, C)."""
        raise NotImplementedError

    @uncompiled("a recursion's steps are no graph")
    def rows(self, positions: Tensor) -> Tensor:
        """Return the vectors p_s: (B or 1, T) -> (B or 1, T, C)."""
        count = end_of(self.label, positions, self.context.max_positions)
        # Half precision would round away the small steps of slow features.
        with torch.autocast(positions.device.type, enabled=False):
            return self.trajectory(max(count, 1))[positions]


@register_encoding(
    "recursive",
    known_as=("gru", "rnn"),
    summary="the states of a GRU that counts, added to the tokens",
    source="survey of position encodings, Recursive",
    formula="x_s + p_s, p_(s+1) = GRU(p_s), p_0 learned",
)
class Recursive(Trajectory):
    """p_{s+1} = GRU(1, p_s) from a learned p_0.

    The GRU has no bias, and its input is always 1, so that its input weights are the biases.
    p_0 is uniform in the range of a GRU's states, (-1, 1). The biases of the gate that keeps the
    old state are the logarithms of U(1, max_positions - 1) (chrono initialisation, Tallec and
    Ollivier 2018), so that features forget over times from one position to the whole length. With
    PyTorch's initial values the states reach a fixed point after about 20 positions, and later
    positions would be indistinguishable.
    """

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        dim, generator = context.embed_dim, context.generator
        self.start = nn.Parameter(2 * torch.rand(dim, generator=generator) - 1)
        # Built without values, which would be drawn from torch's global generator.
        self.gru = nn.GRU(1, dim, bias=False, device="meta").to_empty(device=self.start.device)
        for weight in self.gru.parameters():
            nn.init.uniform_(weight, -(dim**-0.5), dim**-0.5, generator=generator)
        times = 1 + torch.rand(dim, 1, generator=generator) * max(0, context.max_positions - 2)
        with torch.no_grad():
            # PyTorch's order of the gates: reset, keep, new.
            self.gru.get_parameter("weight_ih_l0")[dim : 2 * dim] = times.log()

    def trajectory(self, count: int) -> Tensor:
        start = widened(self.start).unsqueeze(0)
        weights = [widened(self.gru.get_parameter(f"weight_{side}_l0")) for side in ("ih", "hh")]
        # One step more than needed, since a GRU needs at least one.
        ones = start.new_ones(count, 1, 1)
        # cuDNN's GRU uses TF32 and has no gradient in evaluation mode.
        with torch.backends.cudnn.flags(enabled=False):
            states, _ = torch.gru(
                ones,
                start.unsqueeze(0),
                weights,
                has_biases=False,
                num_layers=1,
                dropout=0.0,
                train=self.training,
                bidirectional=False,
                batch_first=False,
            )
        return torch.cat((start, states[:-1, 0]))


class DriftField(nn.Module):
    """h(p, t) = V tanh(U [p; t] + a) + b, the right side of FLOATER's differential equation.

    Weights are uniform as in PyTorch's linear layers; V and b are divided by ``duration``, the
    time of a whole sequence, so that initially p moves by about 1 over it.
    """

    def __init__(
        self, dim: int, hidden_dim: int, duration: float, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        # Built without values, which would be drawn from torch's global generator.
        self.inner = skip_init(nn.Linear, dim + 1, hidden_dim)
        self.outer = skip_init(nn.Linear, hidden_dim, dim)
        for layer, scale in ((self.inner, 1.0), (self.outer, 1.0 / duration)):
            bound = scale * layer.in_features**-0.5
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, time: Tensor, p: Tensor) -> Tensor:
        """Return dp/dt (C) at a time () and p (C)."""
        given = torch.cat((p, time.view(1))).unsqueeze(0)  # quantised layers need a batch
        change: Tensor = _linear(self.outer, _linear(self.inner, given).tanh()).squeeze(0)
        return change


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a layer in float32 or wider."""
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, widened(layer.weight), widened(layer.bias))
    result: Tensor = layer(x)
    return result


def _solver() -> Any:
    """Import torchdiffeq's solver, an optional dependency.

    Raises:
        ModuleNotFoundError: torchdiffeq is not installed.
    """
    try:
        from torchdiffeq import odeint  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        message = f"floater needs torchdiffeq, which {remedy('train')} brings"
        raise ModuleNotFoundError(message, name=error.name) from error
    return odeint


@register_encoding(
    "floater",
    known_as=("ode", "neural_ode"),
    summary="the solution of a learned differential equation, added to the tokens",
    source="FLOATER (Liu et al. 2020); survey of position encodings, Recursive",
    formula="x_s + p(s step), dp/dt = h(p, t), p(0) learned",
)
class Floater(Trajectory):
    """p_s = p(s * step) where dp/dt = h(p, t) from a learned p(0); h is a ``DriftField``.

    Fixed-step methods take one step from each position to the next, adaptive ones as many as
    ``tolerance`` requires. Gradients go through the solver.

    Args:
        context: of the model.
        step: time between neighbouring positions; 0.1 in the paper.
        method: torchdiffeq's name of it: euler, midpoint and rk4 have fixed steps, dopri5 and
            dopri8 are adaptive.
        tolerance: relative and absolute tolerance of adaptive methods.
        hidden_dim: width of h; 0 for ``embed_dim``.
        every_layer: add p to the input of every layer instead of the first only, as the paper
            does; layers share h, and each has its own p(0).

    Raises:
        ValueError: for a ``step`` or ``tolerance`` that is not positive and finite, or a negative
            ``hidden_dim``.
    """

    shared_across_layers = False

    def __init__(
        self,
        context: EncodingContext,
        *,
        step: float = 0.1,
        method: Method = "rk4",
        tolerance: float = 1e-5,
        hidden_dim: int = 0,
        every_layer: bool = False,
    ) -> None:
        super().__init__(context)
        for name, value in (("step", step), ("tolerance", tolerance)):
            if not 0 < value < math.inf:
                raise ValueError(f"`{name}` must be positive and finite, but is {value} instead.")
        if hidden_dim < 0:
            raise ValueError(f"`hidden_dim` must be at least 0, but is {hidden_dim} instead.")
        self.step, self.method, self.tolerance = step, method, tolerance
        self.every_layer = every_layer
        dim, generator = context.embed_dim, context.generator
        self.start = nn.Parameter(torch.randn(dim, generator=generator) * dim**-0.5)
        duration = context.max_positions * step
        self.field: nn.Module = DriftField(dim, hidden_dim or dim, duration, generator)

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        return frozenset(range(num_layers)) if self.every_layer else frozenset({0})

    def share_with(self, first: PositionEncoding) -> None:
        """Share the field between layers."""
        assert isinstance(first, Floater)
        self.field = first.field

    def trajectory(self, count: int) -> Tensor:
        odeint = _solver()
        start = widened(self.start)
        times = torch.arange(count, dtype=torch.float64, device=start.device) * self.step
        rows: Tensor = odeint(
            self.field,
            start,
            times.to(start.dtype),
            method=self.method,
            rtol=self.tolerance,
            atol=self.tolerance,
        )
        return rows
