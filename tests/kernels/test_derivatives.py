"""Second derivatives: refused where a backward pass has the first alone, never in silence."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.encodings.wave_products import wave_products
from fairseq_plugins.kernels import (
    causal_linear_attention,
    linear_attention,
    linear_cross_entropy,
)
from fairseq_plugins.kernels.softmax import softmax_by_head


def decayed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    output = causal_linear_attention(q, k, v, log_decay=-torch.ones(q.shape[:3]))
    assert isinstance(output, Tensor)
    return output


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    output = causal_linear_attention(q, k, v)
    assert isinstance(output, Tensor)
    return output


def by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return softmax_by_head(q, k, v, None, scale=0.5)


def waves(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return wave_products(q, k.unsqueeze(-2), v[0, :, :3])


def drawn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    encoding = build_encoding("spe", num_heads=2, head_dim=3)
    return encoding.transform_query(q, torch.arange(5).unsqueeze(0)) * k.sum() * v.sum()


def losses(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_cross_entropy(q[0, 0], k[0, 1], torch.arange(5))[0].square() * v.sum()


FUSED = [causal, linear_attention, by_head, waves, drawn, losses]


def gradients(function: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(function(*inputs).square().sum(), inputs, create_graph=True)


@pytest.mark.parametrize("function", FUSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("of_chosen_inputs", [True, False])
def test_a_second_derivative_is_refused_instead_of_wrong(function, dtype, of_chosen_inputs):
    """``autograd.grad`` passes by the error of PyTorch's ``once_differentiable``."""
    inputs = [torch.rand(1, 2, 5, 3, dtype=dtype, requires_grad=True) for _ in range(3)]
    total = torch.stack([grad.sum() for grad in gradients(function, inputs)]).sum()
    with pytest.raises(RuntimeError, match="`create_graph` must be False"):
        if of_chosen_inputs:
            torch.autograd.grad(total, inputs[0])
        else:
            total.backward()


def test_products_with_decays_have_a_second_derivative():
    inputs = [torch.rand(1, 2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradgradcheck(decayed, inputs)


@pytest.mark.parametrize("function", [*FUSED, decayed])
def test_the_first_derivative_may_have_a_graph(function):
    inputs = [torch.rand(1, 2, 5, 3, requires_grad=True) for _ in range(3)]
    recomputed = gradients(lambda *x: checkpoint(function, *x, use_reentrant=False), inputs)
    expected = torch.autograd.grad(function(*inputs).square().sum(), inputs)
    if function is not drawn:  # its draws differ
        torch.testing.assert_close(recomputed, expected)


@pytest.mark.parametrize("function", [causal, linear_attention, decayed])
def test_transforms_give_the_second_one(function):
    inputs = [torch.rand(1, 2, 5, 3, dtype=torch.float64) for _ in range(3)]
    along = [torch.randn_like(x) for x in inputs]

    def grad(*x: Tensor) -> tuple[Tensor, ...]:
        result: tuple[Tensor, ...] = torch.func.grad(
            lambda *y: function(*y).square().sum(), argnums=(0, 1, 2)
        )(*x)
        return result

    _, found = torch.func.jvp(grad, tuple(inputs), tuple(along))
    step = 1e-5
    after, before = (
        grad(*(x + sign * step * a for x, a in zip(inputs, along, strict=True))) for sign in (1, -1)
    )
    for actual, high, low in zip(found, after, before, strict=True):
        torch.testing.assert_close(actual, (high - low) / (2 * step), atol=1e-6, rtol=1e-6)
