"""Every encoding under every attention on a GPU (`make test-gpu`): what it computes on a CPU."""

import pytest
import torch

from fairseq_plugins.encodings.offsets import gather_columns, sum_columns
from tests.attention.attention_cases import DIRECTED, Layer, count, error, tokens

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")


@pytest.mark.parametrize(("name", "attention", "causal"), DIRECTED)
def test_a_gpu_computes_what_a_cpu_does(name, attention, causal):
    """In float32, with the gradients of inputs and of all parameters."""
    layer = Layer(name, attention, causal=causal, dtype=torch.float32)
    x, at = tokens(2, 70, torch.float32), count(70)
    results = []
    for device in (torch.device("cpu"), DEVICE):
        layer.to(device).zero_grad()
        given = x.clone().to(device).requires_grad_()
        output = layer(given, at.to(device))
        output.square().sum().backward()
        # A copy: moving the layer moves the gradients of its parameters, in place.
        named = layer.named_parameters()
        found = {n: p.grad.cpu().clone() for n, p in named if p.grad is not None}
        results.append({"output": output.cpu(), "input": given.grad.cpu(), **found})
    expected, actual = results
    assert actual.keys() == expected.keys()
    for part, value in expected.items():
        assert error(actual[part], value) <= 1e-3, part


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_many_pairs_of_a_column_add_up(dtype):
    """2,048 equal weights for one offset: a sum in half precision stops long before."""
    weights = torch.full((1, 1, 3, 2048), 2.0**-11, dtype=dtype, device=DEVICE)
    index = torch.zeros(1, 3, 2048, dtype=torch.long, device=DEVICE)
    assert torch.equal(sum_columns(weights, index, 5)[..., 0], weights.new_ones(1, 1, 3))
    columns = torch.zeros(1, 1, 3, 5, dtype=dtype, device=DEVICE, requires_grad=True)
    gather_columns(columns, index).backward(weights)
    assert columns.grad is not None
    assert torch.equal(columns.grad[..., 0], weights.new_ones(1, 1, 3))
