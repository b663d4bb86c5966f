"""The denominator's bound, and inputs that the kernels refuse."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.kernels import (
    causal_linear_attention,
    linear_attention,
    naive_linear_attention,
)
from fairseq_plugins.kernels.normalizer import MIN_DENOMINATOR, clamp_denominator


@given(st.floats(-1e6, 1e6) | st.floats(-1e-5, 1e-5), st.sampled_from([0.0, 1e-8, 0.5, 10.0]))
def test_denominators_stay_away_from_zero_with_their_sign(number, floor):
    value = torch.tensor([number], dtype=torch.float64)
    clamped = clamp_denominator(value, floor)
    least = max(floor, MIN_DENOMINATOR)
    assert clamped.abs() >= least
    assert (clamped < 0) == (value < 0)
    assert clamped == value if value.abs() >= least else clamped.abs() == least
    assert torch.equal(clamp_denominator(value, torch.full_like(value, floor)), clamped)


def test_a_clamped_denominator_has_no_gradient_and_others_pass_theirs():
    value = torch.tensor([-5.0, -1e-4, 0.0, 1e-4, 5.0], requires_grad=True)
    clamp_denominator(value, 1e-3).sum().backward()
    assert value.grad is not None
    assert value.grad.tolist() == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("kernel", [causal_linear_attention, linear_attention])
def test_keys_that_are_all_zero_give_zero_and_not_nan(kernel):
    q, k, v = torch.rand(1, 1, 4, 3), torch.zeros(1, 1, 4, 3), torch.rand(1, 1, 4, 2)
    assert torch.equal(kernel(q, k, v), torch.zeros(1, 1, 4, 2))


@pytest.mark.parametrize("kernel", [causal_linear_attention, linear_attention])
def test_negative_denominators_keep_their_sign(kernel):
    q, k, v = torch.rand(1, 1, 6, 3), -torch.rand(1, 1, 6, 3), torch.rand(1, 1, 6, 2)
    causal = kernel is causal_linear_attention
    torch.testing.assert_close(kernel(q, k, v), naive_linear_attention(q, k, v, causal=causal))


@pytest.mark.parametrize("size", [1.0, 1e8])
@pytest.mark.parametrize("kernel", [causal_linear_attention, linear_attention])
def test_gradients_of_keys_that_are_zero_are_finite_where_others_are_large(kernel, size):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 70, 4) for _ in range(3))
    k[:, :, [5, 68, 69]] = 0.0
    inputs = [x.requires_grad_() for x in (q, k, v)]
    kernel(*inputs, min_cosine=0.2).backward(torch.full((1, 2, 70, 4), size))
    reference = [x.detach().double().requires_grad_() for x in inputs]
    expected = naive_linear_attention(
        *reference, causal=kernel is causal_linear_attention, min_cosine=0.2
    )
    expected.backward(torch.full((1, 2, 70, 4), size).double())
    for mine, theirs in zip(inputs, reference, strict=True):
        assert mine.grad is not None and theirs.grad is not None
        slopes = (mine.grad.double() / size, theirs.grad / size)
        torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-4)


def shaped(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


@pytest.mark.parametrize("kernel", [causal_linear_attention, linear_attention])
@pytest.mark.parametrize(
    ("q", "k", "v", "named"),
    [
        ((1, 2, 4, 3), (1, 2, 4, 5), (1, 2, 4, 3), r"`q`.*`k`.*\(1, 2, 4, 5\)"),
        ((1, 2, 4, 3), (1, 1, 4, 3), (1, 1, 4, 3), r"`q`.*`k`.*\(1, 1, 4, 3\)"),
        ((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 5, 3), r"`k`.*`v`.*\(1, 2, 5, 3\)"),
    ],
)
def test_shapes_that_do_not_go_together_are_refused(kernel, q, k, v, named):
    with pytest.raises(ValueError, match=named):
        kernel(shaped(*q), shaped(*k), shaped(*v))


def test_other_refusals_name_the_argument_and_its_value():
    x = shaped(1, 1, 4, 2)
    with pytest.raises(ValueError, match=r"`q` and `k`.*4 and 5"):
        causal_linear_attention(x, shaped(1, 1, 5, 2), shaped(1, 1, 5, 2))
    with pytest.raises(ValueError, match="`chunk_size` must be at least 1, but is 0"):
        causal_linear_attention(x, x, x, chunk_size=0)
    with pytest.raises(ValueError, match="`normalizer_q` and `normalizer_k`"):
        linear_attention(x, x, x, normalizer_q=x)
