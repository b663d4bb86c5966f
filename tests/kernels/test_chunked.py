"""The fused pass by itself: gradients to everything that goes in, sums included."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.kernels import LinearState, backend, causal_linear_attention
from fairseq_plugins.kernels.backend import VARIABLE

DIM, VALUES = 3, 2


def inputs(length: int) -> list[torch.Tensor]:
    shapes = [(length, DIM), (length, DIM), (length, VALUES), (DIM, VALUES), (DIM,), (1,)]
    tensors = [torch.randn(1, 2, *shape, dtype=torch.float64) for shape in shapes]
    tensors[-1] = tensors[-1].abs() + 0.1
    return [tensor.requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("min_cosine", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("length", [1, 6, 7])
def test_gradients_to_inputs_and_sums(normalize, min_cosine, length, at_once, monkeypatch):
    """With a floor under few and (5.0, beyond any cosine) under all denominators."""
    monkeypatch.setattr(backend, "takes_all_chunks", lambda _: at_once)

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


class Count(TorchDispatchMode):
    """Counts operations."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.operations += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("lengths", [(130, 650), (128, 640)])
@pytest.mark.parametrize("options", [{"min_cosine": 0.2}, {"epsilon": 0.1}, {"normalize": False}])
def test_all_chunks_at_once_give_the_same_in_operations_that_do_not_grow(
    options, lengths, monkeypatch
):
    """The path of GPUs without Triton, where each operation is a launch."""
    monkeypatch.setenv(VARIABLE, "torch")
    counts = []
    for length in lengths:
        leaves = [torch.rand(1, 2, length, 16, requires_grad=True) for _ in range(3)]
        results = []
        for at_once in (False, True):
            monkeypatch.setattr(backend, "takes_all_chunks", lambda _, value=at_once: value)
            with Count() as count:
                output = causal_linear_attention(*leaves, **options)
                grads = torch.autograd.grad(output.square().sum(), leaves)
            results.append((output, *grads))
        counts.append(count.operations)
        for one, other in zip(*results, strict=True):
            assert (one - other).abs().max() <= 1e-5 * one.abs().max()
    assert counts[0] == counts[1] < 250
