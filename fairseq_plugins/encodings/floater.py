"""FLOATER: position vectors that solve a learned differential equation."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fairseq_plugins.common.extras import install_command
from fairseq_plugins.encodings.base import (
    EncodingContext,
    PositionEncoding,
    check_features,
    widened,
)
from fairseq_plugins.encodings.position_bounds import end_of
from fairseq_plugins.encodings.recursive import Trajectory
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.uncompiled import uncompiled

Method = Literal["euler", "midpoint", "rk4", "dopri5", "dopri8"]
_ADAPTIVE = ("dopri5", "dopri8")
_SUBSTEPS = 5  # of fixed-step methods between two positions, in the release


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
        return _linear(self.outer, _linear(self.inner, _beside(p, time)).tanh()).squeeze(0)


class ReleasedField(nn.Module):
    """h(p, t) = V [relu(U [p; t] + a); t] + b, the field of FLOATER's released code.

    Weights are initialised by Xavier's normal distribution, biases are 0.
    """

    def __init__(self, dim: int, hidden_dim: int, generator: torch.Generator | None) -> None:
        super().__init__()
        # Built without values, which would be drawn from torch's global generator.
        self.inner = skip_init(nn.Linear, dim + 1, hidden_dim)
        self.outer = skip_init(nn.Linear, hidden_dim + 1, dim)
        for layer in (self.inner, self.outer):
            nn.init.xavier_normal_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, time: Tensor, p: Tensor) -> Tensor:
        """Return dp/dt (C) at a time () and p (C)."""
        hidden = _linear(self.inner, _beside(p, time)).relu()
        return _linear(self.outer, _beside(hidden.squeeze(0), time)).squeeze(0)


def _beside(p: Tensor, time: Tensor) -> Tensor:
    """Return [p; t] as a batch of one, which quantised layers need: (C), () -> (1, C + 1)."""
    return torch.cat((p, time.view(1))).unsqueeze(0)


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a layer in float32 or wider."""
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, widened(layer.weight), widened(layer.bias))
    result: Tensor = layer(x)
    return result


def _odeint() -> Any:
    """Import torchdiffeq's solver, an optional dependency.

    Raises:
        ModuleNotFoundError: torchdiffeq is not installed.
    """
    try:
        from torchdiffeq import odeint  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        message = f"floater needs torchdiffeq, which {install_command('train')} brings"
        raise ModuleNotFoundError(message, name=error.name) from error
    return odeint


@dataclass(frozen=True)
class Solver:
    """A numerical solution of dp/dt = field(t, p)."""

    step: float  # time between neighbouring positions
    method: Method  # name in torchdiffeq
    tolerance: float  # relative and absolute tolerance of adaptive methods
    substeps: int = 1  # steps of fixed-step methods from one position to the next

    def __call__(self, field: nn.Module, start: Tensor, count: int) -> Tensor:
        """Return p(0), p(step), ... from p(0) = ``start``: (C) -> (count, C)."""
        substeps = 1 if self.method in _ADAPTIVE else self.substeps
        start = widened(start)
        index = torch.arange((count - 1) * substeps + 1, dtype=torch.float64, device=start.device)
        times = (index * (self.step / substeps)).to(start.dtype)
        tolerances = {"rtol": self.tolerance, "atol": self.tolerance}
        rows: Tensor = _odeint()(field, start, times, method=self.method, **tolerances)
        return rows[::substeps]


@register_encoding(
    "floater",
    known_as=("ode", "neural_ode"),
    summary="the solution of a learned differential equation, added to the tokens",
    source="FLOATER (Liu et al. 2020); Su's survey, Recursive",
    formula="x_s + p(s step), dp/dt = h(p, t), p(0) learned",
)
def floater(
    context: EncodingContext,
    *,
    released: bool = False,
    step: float = 0.0,
    method: Method = "rk4",
    tolerance: float = 1e-5,
    hidden_dim: int = 0,
    every_layer: bool = False,
) -> "Floater | ReleasedFloater":
    """p_s = p(s * step) where dp/dt = h(p, t) from a learned p(0).

    By default h is V tanh(U [p; t] + a) + b, and p is added to the tokens. The authors' released
    code differs: h is V [relu(U [p; t] + a); t] + b, and each layer adds one solution to its
    queries, one to its keys and one to its values, after the projections; layers share h. There
    the framework's own embedding stays on: ``base+floater``.

    Fixed-step methods take one step from each position to the next (as released, five), adaptive
    ones as many as ``tolerance`` requires. Gradients go through the solver.

    Args:
        context: of the model.
        released: as in the authors' code, see above. It solves three equations per layer.
        step: time between neighbouring positions; 0 for 0.1, or 0.01 as released.
        method: torchdiffeq's name of it: euler, midpoint and rk4 have fixed steps, dopri5 and
            dopri8 are adaptive.
        tolerance: relative and absolute tolerance of adaptive methods.
        hidden_dim: width of h; 0 for the width of p.
        every_layer: add p to the input of every layer instead of the first only, as the paper
            does; layers share h, and each has its own p(0). Not as released.

    Raises:
        ValueError: for a ``step`` that is negative or not finite, a ``tolerance`` that is not
            positive and finite, a negative ``hidden_dim``, or ``every_layer`` as released.
    """
    if not 0 <= step < math.inf:
        raise ValueError(
            f"`step` must be positive and finite, or 0 for the default, but is {step} instead."
        )
    if not 0 < tolerance < math.inf:
        raise ValueError(f"`tolerance` must be positive and finite, but is {tolerance} instead.")
    if hidden_dim < 0:
        raise ValueError(f"`hidden_dim` must be at least 0, but is {hidden_dim} instead.")
    if not released:
        return Floater(context, Solver(step or 0.1, method, tolerance), hidden_dim, every_layer)
    if every_layer:
        raise ValueError(
            "`every_layer` must be false with released=true, which adds to each layer's queries, "
            "keys and values, but is True instead."
        )
    return ReleasedFloater(context, Solver(step or 0.01, method, tolerance, _SUBSTEPS), hidden_dim)


class Floater(Trajectory):
    """FLOATER as its paper defines it: p is added to the tokens.

    Args:
        context, hidden_dim, every_layer: see ``floater``.
        solver: of the differential equation.
    """

    shared_across_layers = False

    def __init__(
        self, context: EncodingContext, solver: Solver, hidden_dim: int, every_layer: bool
    ) -> None:
        super().__init__(context)
        self.solver, self.every_layer = solver, every_layer
        dim, generator = context.embed_dim, context.generator
        self.start = nn.Parameter(torch.randn(dim, generator=generator) * dim**-0.5)
        duration = context.max_positions * solver.step
        self.field: nn.Module = DriftField(dim, hidden_dim or dim, duration, generator)

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        return frozenset(range(num_layers)) if self.every_layer else frozenset({0})

    def share_with(self, first: PositionEncoding) -> None:
        """Share the field between layers."""
        assert isinstance(first, Floater)
        self.field = first.field

    def trajectory(self, count: int) -> Tensor:
        return self.solver(self.field, self.start, count)


class ReleasedFloater(PositionEncoding):
    """FLOATER as its authors released it: added to queries, keys and values of each layer.

    The start p(0) of each is uniform within sqrt(6 / (9 C)), as the release draws it for six
    layers; an encoding does not know how many there are. The release computes the solutions anew
    in one pass of 400 and has no gradient of them in between; here every pass computes them.
    Nothing is cached, so a decoding step at position s costs s steps of the solver.

    Args:
        context, hidden_dim: see ``floater``.
        solver: of the differential equation.
    """

    shared_across_layers = False
    is_relative = False
    transform_after_feature_map = False
    keeps_positive = True  # the feature map comes last, so that no weight is negative

    def __init__(self, context: EncodingContext, solver: Solver, hidden_dim: int) -> None:
        super().__init__(context)
        self.solver = solver
        dim, generator = context.num_heads * context.head_dim, context.generator
        bound = (2 / (3 * dim)) ** 0.5
        # Of queries, keys and values: (3, C).
        self.start = nn.Parameter((2 * torch.rand(3, dim, generator=generator) - 1) * bound)
        self.field: nn.Module = ReleasedField(dim, hidden_dim or dim, generator)

    def share_with(self, first: PositionEncoding) -> None:
        """Share the field between layers."""
        assert isinstance(first, ReleasedFloater)
        self.field = first.field

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return q + p: (B, H, T, D) -> (B, H, T, D)."""
        return self._add(q, positions, 0)

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Return k + p: (B, H, S, D) -> (B, H, S, D)."""
        return self._add(k, positions, 1)

    def transform_value(self, v: Tensor, positions: Tensor) -> Tensor:
        """Return v + p: (B, H, S, D) -> (B, H, S, D)."""
        return self._add(v, positions, 2)

    @uncompiled("the number of steps depends on the positions")
    def _add(self, x: Tensor, positions: Tensor, which: int) -> Tensor:
        check_features(self, x)
        count = max(1, end_of(self.label, positions, self.context.max_positions))
        # Half precision would round away the small steps of slow features.
        with torch.autocast(positions.device.type, enabled=False):
            rows = self.solver(self.field, self.start[which], count)
        heads = rows[positions].unflatten(-1, (self.context.num_heads, -1)).transpose(1, 2)
        return x + heads.to(x.dtype)
