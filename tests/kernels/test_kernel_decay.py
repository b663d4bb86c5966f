"""Decaying linear attention against the quadratic formula and the recurrence, far and wide."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fairseq_plugins.kernels import (
    LinearState,
    causal_linear_attention,
    naive_linear_attention,
)
from tests.kernels.test_linear_attention import (
    NORMALIZERS,
    assert_close,
    assert_gradients_close,
    gradients,
    lengths,
    problem,
    small,
    widths,
)

every_normalizer = pytest.mark.parametrize("normalizer", NORMALIZERS)
# How far positions may be apart: none, a little, far beyond what any weight survives.
STRENGTHS = (0.0, 1e-6, 0.1, 3.0, 50.0)


def decays(batch: int, heads: int, length: int) -> Tensor:
    """Random strengths side by side (batch, H, T)."""
    chosen = torch.tensor(STRENGTHS, dtype=torch.float64)
    index = torch.randint(len(STRENGTHS), (batch, heads, length))
    return -chosen[index] * torch.rand(batch, heads, length, dtype=torch.float64)


@every_normalizer
@pytest.mark.parametrize("shared", [True, False])
@given(small, small, lengths, widths, widths, st.integers(1, 50), st.integers(0, 2**31))
def test_chunked_is_quadratic(
    normalizer, shared, batch, heads, length, features, values, chunk, seed
):
    torch.manual_seed(seed)
    case = problem(normalizer, (batch, heads, length), features, values)
    log_decay = decays(1 if shared else batch, heads, length)
    chunked = case.call(causal_linear_attention, log_decay=log_decay, chunk_size=chunk)
    quadratic = case.call(naive_linear_attention, log_decay=log_decay, causal=True)
    assert_close(chunked, quadratic, 1e-10)
    weights = torch.randn_like(quadratic)
    assert_gradients_close(
        gradients(chunked, case.leaves, weights), gradients(quadratic, case.leaves, weights), 1e-10
    )


@every_normalizer
def test_it_is_the_recurrence(normalizer):
    """State = state exp(log_decay_t) + what key t adds; given denominators do not decay."""
    case, log_decay = problem(normalizer, (2, 3, 11), 4, 2), decays(2, 3, 11)
    output, state = case.call(
        causal_linear_attention, log_decay=log_decay, chunk_size=4, return_state=True
    )
    q, k, v = (case.inputs[name] for name in ("q", "k", "v"))
    factor = log_decay.exp().unsqueeze(-1)
    kept = torch.ones_like(factor) if normalizer == "plain" else factor
    norm_q, norm_k = case.inputs.get("normalizer_q", q), case.inputs.get("normalizer_k", k)
    kv, k_sum, k_norm = 0.0, 0.0, 0.0
    for t in range(11):
        kv = factor[:, :, t, None] * kv + k[:, :, t, :, None] * v[:, :, t, None]
        k_sum = kept[:, :, t] * k_sum + norm_k[:, :, t]
        k_norm = kept[:, :, t] * k_norm + norm_k[:, :, t].norm(dim=-1, keepdim=True)
        expected = (q[:, :, t, None] @ kv).squeeze(2)
        if normalizer in ("encoded", "plain"):
            expected = expected / (norm_q[:, :, t] * k_sum).sum(-1, keepdim=True)
        if normalizer == "clamped":
            sums = (norm_q[:, :, t] * k_sum).sum(-1, keepdim=True)
            expected = expected / sums.clamp(min=case.options["epsilon"])
        if normalizer != "floored":
            assert_close(output[:, :, t], expected, 1e-10)
    for name, sums in (("kv", kv), ("k_sum", k_sum), ("k_norm", k_norm)):
        assert_close(getattr(state, name), sums, 1e-12)


@every_normalizer
def test_gradcheck_with_a_state_on_either_side(normalizer):
    case, log_decay = problem(normalizer, (1, 2, 7), 3, 2), decays(1, 2, 7)
    sums = 3 if normalizer == "plain" else case.inputs["q"].size(-1)
    kv = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    k_sum = torch.rand(1, 2, sums, dtype=torch.float64, requires_grad=True)
    k_norm = torch.rand(1, 2, 1, dtype=torch.float64, requires_grad=True)

    def run(kv: Tensor, k_sum: Tensor, k_norm: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = dict(zip(case.inputs, tensors, strict=True))
        output, state = causal_linear_attention(
            **inputs,
            **case.options,
            log_decay=log_decay,
            chunk_size=3,
            initial_state=LinearState(kv, k_sum, k_norm),
            return_state=True,
        )
        return output, *state

    assert torch.autograd.gradcheck(run, (kv, k_sum, k_norm, *case.leaves))


@every_normalizer
@given(st.data(), st.integers(2, 30), st.integers(1, 12), st.integers(0, 2**31))
def test_a_split_anywhere_equals_the_whole(normalizer, data, length, chunk, seed):
    torch.manual_seed(seed)
    case, log_decay = problem(normalizer, (2, 2, length), 4, 3), decays(1, 2, length)
    cut = data.draw(st.integers(1, length - 1))
    whole, last = case.call(causal_linear_attention, log_decay=log_decay, return_state=True)
    parts, state = [], None
    for rows in (slice(cut), slice(cut, None)):
        output, state = causal_linear_attention(
            **case.rows(rows),
            **case.options,
            log_decay=log_decay[:, :, rows],
            chunk_size=chunk,
            initial_state=state,
            return_state=True,
        )
        parts.append(output)
    assert_close(torch.cat(parts, 2), whole, 1e-10)
    for name in LinearState._fields:
        assert_close(getattr(state, name), getattr(last, name), 1e-10)
    weights = torch.randn_like(whole)
    assert_gradients_close(
        gradients(torch.cat(parts, 2), case.leaves, weights),
        gradients(whole, case.leaves, weights),
        1e-10,
    )


@every_normalizer
def test_zero_keys_only_pass_on_their_decay(normalizer):
    """Padded tokens: without them, and with their decay at the next token, all is the same."""
    case, log_decay = problem(normalizer, (2, 2, 20), 4, 3), decays(1, 2, 20)
    kept = torch.rand(20) < 0.6
    kept[0] = True
    masked = {n: t * kept[:, None] if "k" in n else t for n, t in case.inputs.items()}
    fewer = {n: t[:, :, kept] for n, t in masked.items()}
    reached = log_decay.cumsum(-1)[..., kept]
    merged = torch.cat((reached[..., :1], reached.diff(dim=-1)), -1)
    whole = causal_linear_attention(**masked, **case.options, log_decay=log_decay, chunk_size=7)
    alone = causal_linear_attention(**fewer, **case.options, log_decay=merged, chunk_size=7)
    assert_close(whole[:, :, kept], alone, 1e-10)


@every_normalizer
def test_no_decay_is_no_decay(normalizer):
    case = problem(normalizer, (2, 2, 30), 4, 3)
    none = torch.zeros(1, 2, 30)
    plain, plain_state = case.call(causal_linear_attention, chunk_size=8, return_state=True)
    output, state = case.call(
        causal_linear_attention, log_decay=none, chunk_size=8, return_state=True
    )
    assert_close(output, plain, 1e-12)
    for name in LinearState._fields:
        assert_close(getattr(state, name), getattr(plain_state, name), 1e-12)


@pytest.mark.parametrize("normalizer", ["encoded", "plain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("strength", [-50.0, -0.13, -1e-6, 0.0])
def test_five_thousand_tokens_are_finite(normalizer, dtype, strength):
    case = problem(normalizer, (1, 2, 5000), 8, 4).cast(dtype)
    for leaf in case.leaves:
        leaf.requires_grad_()
    output = case.call(causal_linear_attention, log_decay=torch.full((1, 2, 5000), strength))
    assert output.isfinite().all()
    output.float().square().sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in case.leaves)
    if strength == -50.0 and normalizer == "encoded":
        # Nothing is left of the keys before, in the denominator either.
        torch.testing.assert_close(output, case.inputs["v"])


def test_a_strong_decay_does_not_drown_the_weak_ones_after_it():
    """In float32, where a sum of 3,000 has lost the digits of 1e-3."""
    torch.manual_seed(2)
    case = problem("encoded", (1, 2, 300), 8, 4).cast(torch.float32)
    log_decay = -torch.rand(1, 2, 300) * 0.1
    log_decay[:, :, ::64] = -3000.0
    exact = case.cast(torch.float64).call(
        naive_linear_attention, log_decay=log_decay.double(), causal=True
    )
    assert_close(case.call(causal_linear_attention, log_decay=log_decay), exact, 1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("normalizer", ["encoded", "plain"])
def test_half_precision_only_rounds_inputs_and_output(dtype, normalizer):
    half, log_decay = problem(normalizer, (1, 2, 500), 16, 16).cast(dtype), decays(1, 2, 500)
    result = half.call(causal_linear_attention, log_decay=log_decay.float())
    wide = half.cast(torch.float64)
    expected = wide.call(naive_linear_attention, log_decay=log_decay, causal=True)
    assert result.dtype == dtype
    assert_close(result, expected, 1e-2)


def test_a_recorded_graph_of_symbolic_sizes_takes_other_lengths():
    def attend(q, k, v, log_decay):
        return causal_linear_attention(q, k, v, log_decay=log_decay)

    cases = {n: (*torch.rand(3, 2, 3, n, 8).unbind(), -torch.rand(1, 3, n)) for n in (64, 5, 129)}
    graph = make_fx(attend, tracing_mode="symbolic")(*cases[64])
    for inputs in cases.values():
        assert_close(graph(*inputs), attend(*inputs), 1e-6)


def test_refusals():
    q = torch.rand(2, 3, 4, 5)
    for shape in ((1, 3, 5), (2, 1, 4), (3, 4), (2, 3, 4, 1)):
        with pytest.raises(ValueError, match=r"`log_decay` must be .*\(2 or 1, 3, 4\).*but is \("):
            causal_linear_attention(q, q, q, log_decay=torch.zeros(shape))
    with pytest.raises(ValueError, match="`log_decay` must not require a gradient"):
        causal_linear_attention(q, q, q, log_decay=torch.zeros(1, 3, 4, requires_grad=True))
