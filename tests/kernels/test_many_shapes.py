"""The chunked kernel against the quadratic formula over very many random shapes (slow)."""

import random

import pytest
import torch

from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention
from tests.kernels.test_linear_attention import (
    NORMALIZERS,
    assert_close,
    assert_gradients_close,
    gradients,
    problem,
)

SHAPES = 2500


def without(padded: torch.Tensor, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Inputs of which padded keys are zero."""
    return {
        name: tensor.masked_fill(padded, 0.0) if name in ("k", "normalizer_k") else tensor
        for name, tensor in inputs.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_random_shapes_chunks_and_paddings(normalizer: str) -> None:
    draw = random.Random(0)
    for _ in range(SHAPES):
        shape = (draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 200))
        case = problem(normalizer, shape, draw.randint(1, 24), draw.randint(1, 24))
        padded = torch.rand(shape[0], 1, shape[2], 1) < draw.choice((0.0, 0.3))
        chunk = draw.randint(1, 220)
        chunked = causal_linear_attention(
            **without(padded, case.inputs), **case.options, chunk_size=chunk
        )
        assert isinstance(chunked, torch.Tensor)
        quadratic = naive_linear_attention(
            **without(padded, case.inputs), **case.options, causal=True
        )
        # A row that sees padding only divides rounding by the least denominator.
        seen = (~padded).cumsum(2).expand(quadratic.shape) > 0
        assert_close(chunked * seen, quadratic * seen, 1e-9)
        weights = torch.randn_like(quadratic) * seen
        assert_gradients_close(
            gradients(chunked, case.leaves, weights),
            gradients(quadratic, case.leaves, weights),
            1e-8,
        )
