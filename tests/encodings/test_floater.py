"""FLOATER, by its properties."""

import math

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.analysis.theory import RotationField
from fairseq_plugins.attention import PositionalMultiheadAttention, build_attention
from fairseq_plugins.encodings import (
    build_model_encodings,
)
from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.frequencies import geometric
from tests.encodings.absolute import build, count, smallest_distance


class Still(nn.Module):
    """dp/dt = 0."""

    def forward(self, time: Tensor, p: Tensor) -> Tensor:
        return torch.zeros_like(p)


class Clock(nn.Module):
    """dp/dt = 2 t: p(t) = p(0) + t^2."""

    def forward(self, time: Tensor, p: Tensor) -> Tensor:
        return 2 * time.expand_as(p)


def rotating(width: int, fastest: float, **options):
    """FLOATER whose solution is the sinusoid of ``fastest`` times the usual frequencies."""
    encoding = build("floater", width, **options).double()
    encoding.field = RotationField(fastest * geometric(width // 2, width) / encoding.solver.step)
    encoding.start.data = torch.tensor([0.0, 1.0] * (width // 2), dtype=torch.float64)
    return encoding


@pytest.mark.parametrize(
    ("method", "step", "tolerance"),
    [("dopri5", 0.1, 1e-7), ("dopri5", 1.0, 1e-7), ("dopri8", 0.1, 1e-10)],
)
def test_sinusoids_solve_a_rotation_field(method, step, tolerance):
    encoding = rotating(8, 1.0, method=method, step=step, tolerance=tolerance)
    expected = build("sinusoidal").rows(count(40)).double()
    assert (encoding.rows(count(40)) - expected).abs().max() < 1e-5


def test_rk4_is_of_fourth_order_and_euler_of_first():
    """Half the turn per step leaves 1/16 of the error per unit of time, or 1/2."""
    for method, order in (("rk4", 4), ("midpoint", 2), ("euler", 1)):
        errors = []
        for fastest in (0.1, 0.05):
            steps = round(10 / fastest)
            last = rotating(2, fastest, method=method).rows(torch.tensor([[steps]]))[0, 0]
            exact = torch.tensor([math.sin(10.0), math.cos(10.0)], dtype=torch.float64)
            errors.append(float((last - exact).detach().norm()))
        assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.5)
        if method == "rk4":
            assert errors[0] < 1e-5


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "dopri5", "dopri8"])
def test_without_drift_all_positions_are_the_first(method):
    encoding = build("floater", method=method)
    encoding.field = Still()
    rows = encoding.rows(count(20))[0]
    torch.testing.assert_close(rows, encoding.start.expand_as(rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("step", [0.1, 0.5])
def test_time_is_position_times_step(step):
    encoding = build("floater", step=step).double()
    encoding.field = Clock()
    elapsed = encoding.rows(torch.tensor([[0, 7, 30]]))[0] - encoding.start
    expected = (torch.tensor([0.0, 7.0, 30.0], dtype=torch.float64) * step).square()
    torch.testing.assert_close(elapsed, expected.unsqueeze(1).expand(3, 8))


def test_a_trained_length_moves_the_vector_by_about_one():
    for longest in (16, 128):
        rows = build("floater", 64, max_positions=longest).rows(count(longest))[0]
        assert 0.05 < (rows[-1] - rows[0]).square().mean().sqrt() < 1
        assert smallest_distance(rows) > 1e-4


def test_every_layer_shares_the_field_and_starts_by_itself():
    context = EncodingContext(1, 8, 8, max_positions=16)
    first_only = build_model_encodings("floater", 3, context, {}).inputs
    assert [encoding is not None for encoding in first_only] == [True, False, False]
    every = build_model_encodings("floater", 3, context, {"every_layer": True}).inputs
    assert all(encoding.field is every[0].field for encoding in every)
    starts = torch.stack([encoding.start for encoding in every])
    assert smallest_distance(starts) > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -0.1}, r"`step` must be positive and finite, .* but is -0\.1"),
        ({"step": math.inf}, "`step`"),
        ({"tolerance": -1.0}, "`tolerance` must be positive"),
        ({"hidden_dim": -1}, "`hidden_dim` must be at least 0, but is -1"),
        ({"released": True, "every_layer": True}, "`every_layer` must be false with released"),
        ({"method": "rk5"}, "option `method` must be one of euler, .*'rk5'"),
    ],
)
def test_floater_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        build("floater", **options)


def test_its_field_can_be_quantised():
    encoding = build("floater")
    expected = encoding.rows(count(20))
    quantised = torch.ao.quantization.quantize_dynamic(encoding, {torch.nn.Linear})
    assert (quantised.rows(count(20)) - expected).abs().max() < 0.05


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_a_layer_with_its_field_can_be_quantised(attention):
    torch.manual_seed(0)
    options = {"position_encoding": "floater", "released": True, "attention": attention}
    layer, x = PositionalMultiheadAttention(32, 4, **options), torch.randn(2, 9, 32)
    quantised = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear})
    assert not [part for part in quantised.modules() if type(part) is nn.Linear]
    expected = layer(x, x, x)[0]
    assert (quantised(x, x, x)[0] - expected).abs().max() < 0.05 * expected.abs().max()


# As released

HEADS, HEAD_DIM = 2, 4
C = HEADS * HEAD_DIM


def released(causal: bool, num_layers: int = 2):
    """One encoding for each layer, in float64."""
    generator = torch.Generator().manual_seed(3)
    context = EncodingContext(
        HEADS, HEAD_DIM, C, max_positions=16, causal=causal, generator=generator
    )
    stack = build_model_encodings("floater", num_layers, context, {"released": True})
    assert stack.inputs == [None] * num_layers
    return [encoding.double() for encoding in stack.layers]


def flow(starts: Tensor, weights: dict[str, Tensor], count: int) -> Tensor:
    """The release's vectors (count, 3, L, C) from its starts (3, L, C), by Kutta's 3/8 rule."""

    def field(t: float, p: Tensor) -> Tensor:
        time = torch.full((*p.shape[:-1], 1), t, dtype=p.dtype)
        h = torch.cat((p, time), -1) @ weights["inner.weight"].T + weights["inner.bias"]
        h = torch.cat((h.clamp(min=0), time), -1)
        return h @ weights["outer.weight"].T + weights["outer.bias"]

    rows, p, h = [starts], starts, 0.01 / 5
    for number in range(5 * (count - 1)):
        t = number * h
        a = field(t, p)
        b = field(t + h / 3, p + h * a / 3)
        c = field(t + 2 * h / 3, p + h * (b - a / 3))
        p = p + h * (a + 3 * b + 3 * c + field(t + h, p + h * (a - b + c))) / 8
        if number % 5 == 4:
            rows.append(p)
    return torch.stack(rows)


def flow_attention(x: Tensor, weight: Tensor, added: Tensor, causal: bool) -> Tensor:
    """The release's self-attention without its output projection: x (T, C), added (T, 3, C)."""
    q, k, v = (x @ weight.T).chunk(3, dim=-1)
    q, k, v = ((a + added[:, i]) for i, a in enumerate((q, k, v)))
    outputs = []
    for head in range(HEADS):
        features = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        logits = (q[:, features] * HEAD_DIM**-0.5) @ k[:, features].T
        if causal:
            logits = logits + torch.full_like(logits, -torch.inf).triu(1)
        outputs.append(logits.softmax(-1) @ v[:, features])
    return torch.cat(outputs, -1)


@pytest.mark.parametrize("causal", [True, False])
def test_as_released_every_layer_is_the_released_attention(causal):
    torch.manual_seed(0)
    encodings = released(causal)
    length = 12
    weights = encodings[0].field.state_dict()
    assert all(encoding.field is encodings[0].field for encoding in encodings)
    starts = torch.stack([encoding.start.detach() for encoding in encodings], dim=1)
    added = flow(starts, weights, length)
    for number, encoding in enumerate(encodings):
        x = torch.randn(length, C, dtype=torch.float64)
        weight = torch.randn(3 * C, C, dtype=torch.float64)
        expected = flow_attention(x, weight, added[:, :, number], causal)
        attention = build_attention(
            "vanilla", encoding, num_heads=HEADS, head_dim=HEAD_DIM, causal=causal
        )
        q, k, v = (x @ weight.T).view(1, length, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        at = count(length)
        output, _ = attention(q, k, v, q_positions=at, k_positions=at)
        assert (output[0].transpose(0, 1).flatten(1) - expected).abs().max() < 1e-5
