"""What the Triton kernel is held to, in the interpreter and on a GPU: naive formulas in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention
from fairseq_plugins.kernels.naive import naive_causal_product

NORMALIZERS = ("encoded", "floored", "plain", "none", "clamped")
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Shape:
    """(B, H, T, D') and (B, H, T, M)."""

    batch: int
    heads: int
    length: int
    features: int
    values: int

    def __str__(self) -> str:
        return "x".join(map(str, vars(self).values()))


# One token, one chunk, a ragged chunk, several chunks, several segments; every width's padding.
SMALL = (
    Shape(1, 1, 1, 8, 8),
    Shape(2, 1, 64, 24, 8),
    Shape(1, 2, 100, 64, 64),
    Shape(2, 2, 300, 24, 20),
    Shape(1, 1, 600, 128, 64),
    Shape(1, 1, 530, 8, 64),
    Shape(2, 3, 40, 150, 140),
)


def draw(shape: Shape, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Leaves q, k, v and a float32 start."""
    rows = (shape.batch, shape.heads, shape.length)
    tensors = [torch.randn(*rows, shape.features).to(dtype) for _ in range(2)]
    tensors.append(torch.randn(*rows, shape.values).to(dtype))
    tensors.append(torch.randn(*rows[:2], shape.features, shape.values))
    return [tensor.to(device).requires_grad_() for tensor in tensors]


def wide(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, name: str) -> None:
    """Equal up to ``tolerance`` times the largest expected value."""
    assert actual.shape == expected.shape
    scale = expected.abs().max().clamp(min=1e-3)
    error = (actual.double() - expected).abs().max() / scale
    assert error <= tolerance, f"{name}: relative error {error:.2e}"


def check_product(shape: Shape, dtype: torch.dtype, device: str) -> None:
    """Output, last state, and the gradients that come through both."""
    from fairseq_plugins.kernels.triton_linear import causal_product

    inputs = draw(shape, dtype, device)
    exact = wide(inputs)
    actual, expected = causal_product(*inputs), naive_causal_product(*exact)
    weights = [torch.randn_like(part) for part in actual]
    gradients = torch.autograd.grad(actual, inputs, weights)
    wanted = torch.autograd.grad(expected, exact, [weight.double() for weight in weights])
    for name, a, b in zip(("output", "end"), actual, expected, strict=True):
        assert a.dtype == torch.float32
        assert_close(a, b, TOLERANCES[dtype], name)
    for name, x, a, b in zip(("q", "k", "v", "start"), inputs, gradients, wanted, strict=True):
        assert a.dtype == x.dtype
        assert_close(a, b, TOLERANCES[dtype], f"gradient of {name}")


def check_attention(
    shape: Shape, normalizer: str, dtype: torch.dtype, device: str, *, sequence_first: bool = False
) -> None:
    """The divided output and all gradients; ``FAIRSEQ_PLUGINS_KERNEL`` must say ``triton``."""
    inputs = dict(zip("qkv", draw(shape, dtype, device)[:3], strict=True))
    options: dict[str, float | bool] = {"normalize": normalizer != "none"}
    if normalizer == "encoded":
        inputs |= {n: inputs[n].detach().abs().add(0.1).requires_grad_() for n in "qk"}
    if normalizer == "floored":
        options["min_cosine"] = 0.3
    if normalizer == "clamped":
        # A quarter of a typical sum of q . k over the whole length, so that some sums are clamped
        # and some not; where sums near 0 divide, rounding is all that is seen.
        options["epsilon"] = (shape.features * shape.length) ** 0.5 / 4
    if normalizer == "plain":
        rows = (shape.batch, shape.heads, shape.length)
        for name in ("normalizer_q", "normalizer_k"):
            features = (torch.rand(*rows, 20) + 0.1).to(dtype).to(device)
            inputs[name] = features.requires_grad_()
    exact = dict(zip(inputs, wide(list(inputs.values())), strict=True))
    given = dict(inputs)
    if sequence_first:
        # The strides of (T, B, H, D), as fairseq's projections leave them.
        given = {
            n: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) for n, x in inputs.items()
        }
    actual = causal_linear_attention(**given, **options)
    expected = naive_linear_attention(**exact, **options, causal=True)
    assert isinstance(actual, Tensor)
    assert actual.dtype == (torch.float32 if normalizer == "none" else dtype)
    assert_close(actual, expected, TOLERANCES[dtype], "output")
    weights = torch.randn_like(actual)
    got = torch.autograd.grad(actual, list(inputs.values()), weights)
    wanted = torch.autograd.grad(expected, list(exact.values()), weights.double())
    assert [g.dtype for g in got] == [dtype] * len(got)
    # On one scale: the gradient of one may be zero but for rounding.
    joined = (torch.cat([g.flatten().double() for g in each]) for each in (got, wanted))
    assert_close(*joined, TOLERANCES[dtype], "gradients")
