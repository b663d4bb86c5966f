"""The fused pass by itself: gradients to everything that goes in, sums included."""

import pytest
import torch

from fairseq_plugins.kernels import LinearState, causal_linear_attention

DIM, VALUES = 3, 2


def inputs(length: int) -> list[torch.Tensor]:
    shapes = [(length, DIM), (length, DIM), (length, VALUES), (DIM, VALUES), (DIM,), (1,)]
    tensors = [torch.randn(1, 2, *shape, dtype=torch.float64) for shape in shapes]
    tensors[-1] = tensors[-1].abs() + 0.1
    return [tensor.requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("min_cosine", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("length", [1, 7])
def test_gradients_to_inputs_and_sums(normalize, min_cosine, length):
    """With a floor under few and (5.0, beyond any cosine) under all denominators."""

    def run(q, k, v, *state):
        output, after = causal_linear_attention(
            q,
            k,
            v,
            normalize=normalize,
            min_cosine=min_cosine,
            chunk_size=3,
            initial_state=LinearState(*state),
            return_state=True,
        )
        return output, *after

    torch.manual_seed(length)
    assert torch.autograd.gradcheck(run, inputs(length))


def test_the_same_twice_is_the_same_to_the_bit():
    q, k, v = (torch.randn(2, 3, 150, 16, requires_grad=True) for _ in range(3))
    results = []
    for _ in range(2):
        output = causal_linear_attention(q, k, v, min_cosine=0.2)
        results.append((output, *torch.autograd.grad(output.square().sum(), (q, k, v))))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
