"""The chunked kernels against the quadratic formulas: outputs, gradients, states, precision."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.kernels import (
    LinearState,
    causal_linear_attention,
    linear_attention,
    naive_linear_attention,
)
from fairseq_plugins.kernels.naive import outer_product_linear_attention

# Floored and clamped: features of both signs, whose denominator is kept away from zero.
NORMALIZERS = ("encoded", "floored", "plain", "none", "clamped")
OPTIONS: dict[str, dict[str, Any]] = {
    "floored": {"min_cosine": 0.3},
    "none": {"normalize": False},
}


@dataclass(frozen=True)
class Problem:
    """Inputs of a kernel. ``options`` says which denominator."""

    inputs: dict[str, Tensor]
    options: dict[str, Any]

    @property
    def leaves(self) -> list[Tensor]:
        return list(self.inputs.values())

    def call(self, kernel, **more):
        return kernel(**self.inputs, **self.options, **more)

    def cast(self, dtype: torch.dtype) -> "Problem":
        return Problem({n: t.detach().to(dtype) for n, t in self.inputs.items()}, self.options)

    def rows(self, part: slice) -> dict[str, Tensor]:
        return {name: tensor[:, :, part] for name, tensor in self.inputs.items()}


def problem(
    normalizer: str, shape: tuple[int, ...], features: int, values: int, *, keys: int | None = None
) -> Problem:
    """Random float64 inputs whose denominators are not near zero, or are kept from it."""
    keys = shape[2] if keys is None else keys

    def draw(length: int, dim: int) -> Tensor:
        return torch.randn(*shape[:2], length, dim, dtype=torch.float64)

    q, k, v = draw(shape[2], features), draw(keys, features), draw(keys, values)
    inputs = {"q": q, "k": k, "v": v}
    if normalizer == "encoded":
        inputs |= {"q": q.abs() + 0.1, "k": k.abs() + 0.1}
    if normalizer == "plain":
        # The plain features have another width, as under an encoding that doubles it.
        inputs |= {
            "normalizer_q": draw(shape[2], 3).abs() + 0.1,
            "normalizer_k": draw(keys, 3).abs() + 0.1,
        }
    for tensor in inputs.values():
        tensor.requires_grad_()
    if normalizer == "clamped":
        # A share of how large sums of random products are, so that some are on either side.
        return Problem(inputs, {"epsilon": 0.3 * (keys * features) ** 0.5})
    return Problem(inputs, OPTIONS.get(normalizer, {}))


def gradients(output: Tensor, leaves: list[Tensor], weights: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True))


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal up to ``tolerance`` times the largest expected value (1e-3 where all are tiny)."""
    scale = expected.abs().max().clamp(min=1e-3)
    error = (actual.double() - expected.double()).abs().max() / scale
    assert error <= tolerance, f"relative error {error:.2e}"


def assert_gradients_close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Equal up to ``tolerance`` times the largest of all these gradients.

    Of all, because one may be zero but for rounding: that of a single floored feature is, whose
    size cancels against its norm's.
    """
    joined = [torch.cat([g.flatten() for g in each]) for each in (actual, expected)]
    assert_close(*joined, tolerance)


small = st.integers(1, 3)
lengths = st.integers(1, 40)
widths = st.integers(1, 6)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@given(small, small, lengths, widths, widths, st.integers(1, 50), st.integers(0, 2**31))
def test_chunked_is_quadratic(normalizer, batch, heads, length, features, values, chunk, seed):
    torch.manual_seed(seed)
    case = problem(normalizer, (batch, heads, length), features, values)
    chunked = case.call(causal_linear_attention, chunk_size=chunk)
    quadratic = case.call(naive_linear_attention, causal=True)
    assert_close(chunked, quadratic, 1e-10)
    weights = torch.randn_like(quadratic)
    assert_gradients_close(
        gradients(chunked, case.leaves, weights), gradients(quadratic, case.leaves, weights), 1e-10
    )


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@given(small, lengths, lengths, widths, widths, st.integers(0, 2**31))
def test_bidirectional_is_quadratic(normalizer, batch, queries, keys, features, values, seed):
    torch.manual_seed(seed)
    case = problem(normalizer, (batch, 2, queries), features, values, keys=keys)
    fast, quadratic = case.call(linear_attention), case.call(naive_linear_attention)
    assert_close(fast, quadratic, 1e-10)
    weights = torch.randn_like(quadratic)
    assert_gradients_close(
        gradients(fast, case.leaves, weights), gradients(quadratic, case.leaves, weights), 1e-10
    )


def test_the_two_references_agree():
    case = problem("encoded", (2, 3, 17), 5, 4)
    expected = outer_product_linear_attention(**case.inputs)
    assert_close(case.call(naive_linear_attention, causal=True), expected, 1e-12)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_gradcheck_with_a_state_on_either_side(normalizer):
    case = problem(normalizer, (1, 2, 7), 3, 2)
    sums = 3 if normalizer == "plain" else case.inputs["q"].size(-1)
    kv = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    k_sum = torch.rand(1, 2, sums, dtype=torch.float64, requires_grad=True)
    k_norm = torch.rand(1, 2, 1, dtype=torch.float64, requires_grad=True)

    def run(kv: Tensor, k_sum: Tensor, k_norm: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = dict(zip(case.inputs, tensors, strict=True))
        output, state = causal_linear_attention(
            **inputs,
            **case.options,
            chunk_size=3,
            initial_state=LinearState(kv, k_sum, k_norm),
            return_state=True,
        )
        return output, *state

    assert torch.autograd.gradcheck(run, (kv, k_sum, k_norm, *case.leaves))


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@given(st.data(), st.integers(2, 30), st.integers(1, 12), st.integers(0, 2**31))
def test_a_split_anywhere_equals_the_whole(normalizer, data, length, chunk, seed):
    torch.manual_seed(seed)
    case = problem(normalizer, (2, 2, length), 4, 3)
    cut = data.draw(st.integers(1, length - 1))
    whole, last = case.call(causal_linear_attention, return_state=True)
    head, state = causal_linear_attention(
        **case.rows(slice(cut)), **case.options, chunk_size=chunk, return_state=True
    )
    tail, end = causal_linear_attention(
        **case.rows(slice(cut, None)),
        **case.options,
        chunk_size=chunk,
        initial_state=state,
        return_state=True,
    )
    assert_close(torch.cat((head, tail), 2), whole, 1e-10)
    for name in LinearState._fields:
        assert_close(getattr(end, name), getattr(last, name), 1e-10)
    weights = torch.randn_like(whole)
    for actual, expected in zip(
        gradients(torch.cat((head, tail), 2), case.leaves, weights),
        gradients(whole, case.leaves, weights),
        strict=True,
    ):
        assert_close(actual, expected, 1e-10)


def test_the_state_is_the_sum_over_the_keys():
    case = problem("plain", (2, 2, 11), 4, 3)
    _, state = case.call(causal_linear_attention, chunk_size=4, return_state=True)
    k, v = case.inputs["k"], case.inputs["v"]
    assert_close(state.kv, torch.einsum("bhtd,bhtm->bhdm", k, v), 1e-12)
    norm_k = case.inputs["normalizer_k"]
    assert_close(state.k_sum, norm_k.sum(2), 1e-12)
    assert_close(state.k_norm, norm_k.square().sum(-1, keepdim=True).sqrt().sum(2), 1e-12)


@pytest.mark.parametrize("causal", [True, False])
@given(st.floats(0.05, 1.0), st.integers(0, 2**31))
def test_a_floor_bounds_the_weights(causal, floor, seed):
    """Absolute weights of a query sum to at most 1 / floor, whatever the signs of the features."""
    torch.manual_seed(seed)
    q, k = torch.randn(2, 1, 2, 30, 3, dtype=torch.float64)
    kernel = causal_linear_attention if causal else linear_attention
    # The values of key t are the unit vector e_t, so that the output is the weights.
    units = torch.eye(30, dtype=torch.float64).expand(1, 2, -1, -1)
    weights = kernel(q, k, units, min_cosine=floor)
    assert weights.abs().sum(-1).max() <= 1 / floor * (1 + 1e-9)


def test_a_floor_below_the_denominator_changes_nothing():
    case = problem("encoded", (2, 2, 20), 4, 3)  # Positive features: cosines above 0.1.
    for kernel in (causal_linear_attention, linear_attention):
        assert torch.equal(case.call(kernel, min_cosine=0.01), case.call(kernel))


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_no_gradient_comes_from_the_future(normalizer):
    case = problem(normalizer, (1, 1, 12), 3, 2)
    output = case.call(causal_linear_attention, chunk_size=5)
    for s in range(12):
        _, grad_k, grad_v = torch.autograd.grad(
            output[:, :, s].sum(), case.leaves[:3], retain_graph=True
        )
        assert not grad_k[:, :, s + 1 :].any()
        assert not grad_v[:, :, s + 1 :].any()


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_zero_keys_count_for_nothing(normalizer):
    case = problem(normalizer, (2, 2, 20), 4, 3)
    kept = torch.rand(20) < 0.6
    kept[0] = True
    masked = {n: t * kept[:, None] if "k" in n else t for n, t in case.inputs.items()}
    fewer = {n: t[:, :, kept] if n in ("k", "v", "normalizer_k") else t for n, t in masked.items()}
    assert_close(
        linear_attention(**masked, **case.options), linear_attention(**fewer, **case.options), 1e-10
    )


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("causal", [True, False])
def test_float32_is_close_to_float64(normalizer, causal):
    exact = problem(normalizer, (1, 4, 1000), 32, 32)
    # The same rounded inputs on both sides: what is measured is the kernel's own error.
    single = exact.cast(torch.float32)
    kernel = causal_linear_attention if causal else linear_attention
    reference = single.cast(torch.float64).call(naive_linear_attention, causal=causal)
    result = single.call(kernel)
    assert result.dtype == torch.float32
    assert_close(result, reference, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("normalizer", ["encoded", "plain"])
@pytest.mark.parametrize("causal", [True, False])
def test_half_precision_only_rounds_inputs_and_output(dtype, normalizer, causal):
    half = problem(normalizer, (1, 2, 500), 16, 16).cast(dtype)
    for tensor in half.leaves:
        tensor.requires_grad_()
    wide = half.cast(torch.float64)
    for tensor in wide.leaves:
        tensor.requires_grad_()
    kernel = causal_linear_attention if causal else linear_attention
    result, reference = half.call(kernel), wide.call(naive_linear_attention, causal=causal)
    assert result.dtype == dtype
    assert_close(result, reference, 1e-2)
    weights = torch.randn_like(reference).to(dtype)
    for actual, expected in zip(
        gradients(result, half.leaves, weights),
        gradients(reference, wide.leaves, weights.double()),
        strict=True,
    ):
        assert actual.dtype == dtype
        assert_close(actual, expected, 1e-2)


@pytest.mark.parametrize("kernel", [causal_linear_attention, linear_attention])
def test_sums_past_the_range_of_float16_stay_finite(kernel):
    ones = torch.full((1, 1, 4096, 8), 4.0, dtype=torch.float16)
    assert torch.equal(kernel(ones, ones, ones), ones)


@pytest.mark.parametrize("kernel", [causal_linear_attention, linear_attention])
def test_half_precision_does_not_round_a_slope_that_is_a_small_difference(kernel):
    """Where values have a mean, the gradient along the output all but cancels that through it."""
    torch.manual_seed(0)
    q, k, v = torch.rand(1, 2, 256, 16), torch.rand(1, 2, 256, 16), 3 + torch.randn(1, 2, 256, 16)
    half = [x.bfloat16().requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in half]
    weights = torch.randn(1, 2, 256, 16).bfloat16()
    causal = kernel is causal_linear_attention
    kernel(*half, min_cosine=0.2).backward(weights)
    naive_linear_attention(*wide, causal=causal, min_cosine=0.2).backward(weights.double())
    for actual, expected in zip(half, wide, strict=True):
        assert actual.grad is not None and expected.grad is not None
        assert_close(actual.grad, expected.grad, 1e-2)
