"""Trace a training pass through the Triton path as ``torch.compile`` does, without a GPU.

    python -m tests.kernels.trace_triton

Kernels are traced and never launched. It fails where a pass is not one graph.
"""

from contextlib import nullcontext
from typing import Any

import torch
from torch._dynamo.variables import builder
from torch.utils import _triton as torch_triton
from triton.runtime.jit import JITFunction

from fairseq_plugins.kernels import backend, causal_linear_attention, triton_linear

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"min_cosine": 0.2},
    {"normalize": False},
    {"return_state": True},
)
LENGTHS = (100, 300)  # one segment, and two


def pretend_gpu() -> None:
    """What asks the device, or PyTorch for one, is told of an H100."""
    for module in (torch_triton, builder):
        if hasattr(module, "has_triton"):
            module.has_triton = lambda: True
    backend._obstacle = lambda device, dtype: ""
    triton_linear._capability = lambda tensor: (9, 0)
    triton_linear._on = lambda tensor: nullcontext()
    JITFunction.run = lambda self, *args, **named: None


def main() -> None:
    pretend_gpu()
    for options in OPTIONS:
        for length in LENGTHS:
            torch._dynamo.reset()

            def attend(*inputs: torch.Tensor, options: dict[str, Any] = options) -> torch.Tensor:
                result = causal_linear_attention(*inputs, **options)
                return (result[0] if isinstance(result, tuple) else result).cos()

            q, k, v = (
                torch.zeros(2, 2, length, 64, dtype=torch.bfloat16, requires_grad=True)
                for _ in range(3)
            )
            output = torch.compile(attend, backend="eager", fullgraph=True)(q, k, v)
            assert output.shape == v.shape
            print(f"one graph: {options}, {length} tokens")


if __name__ == "__main__":
    main()
