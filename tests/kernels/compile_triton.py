"""Compile the Triton kernels as they would be launched, for architectures that need not be here.

    python -m tests.kernels.compile_triton 80 90

prints JSON: for every architecture, dtype, shape and kernel the matrix instructions in its PTX,
its shared memory in bytes, and the bytes that each thread keeps outside registers.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_plugins.kernels import triton_kernels, triton_linear

KERNELS = [n for n, f in vars(triton_kernels).items() if isinstance(f, triton.JITFunction)]
# D', M, and whether divided in the same pass.
CASES = ((64, 64, False), (64, 64, True), (128, 64, True))
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}


class Recorder:
    """Stands where a kernel was and keeps the arguments of its last launch."""

    def __init__(self, kernel: Any, launches: dict[str, Any]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.record

    def record(self, *args: Any, **named: Any) -> None:
        options = {n: named.pop(n) for n in ("num_warps", "num_stages") if n in named}
        values = dict(zip(self.kernel.arg_names, args, strict=False)) | named
        self.launches[self.kernel.__name__] = (self.kernel, values, options)


def launches(
    architecture: int, dtype: torch.dtype, features: int, values: int, divided: bool
) -> dict[str, Any]:
    """Every launch of a forward and a backward pass, recorded in their stead."""
    found: dict[str, Any] = {}
    kernels = {name: getattr(triton_kernels, name) for name in KERNELS if name[0] != "_"}
    capability = divmod(architecture, 10)
    widest = triton_linear.widest_part(capability, dtype)
    features, values = min(features, widest[0]), min(values, widest[1])
    asked = triton_linear._capability
    triton_linear._capability = lambda _: capability
    for name, kernel in kernels.items():
        setattr(triton_kernels, name, Recorder(kernel, found))
    shape = (2, 2, 1024)
    q, k = (torch.zeros(*shape, features, dtype=dtype).requires_grad_() for _ in range(2))
    v = torch.zeros(*shape, values, dtype=dtype).requires_grad_()
    if divided:
        output = triton_linear.causal_attention(q, k, v, None, None, 0.2)
        assert output is not None
    else:
        output, _ = triton_linear.causal_product(q, k, v, torch.zeros(2, 2, features, values))
    torch.autograd.grad(output, (q, k, v), torch.zeros_like(output))
    triton_linear._capability = asked
    for name, kernel in kernels.items():
        setattr(triton_kernels, name, kernel)
    return found


def source(kernel: Any, values: dict[str, Any]) -> ASTSource:
    """The kernel specialised as Triton does at a launch: None, 1, and what 16 divides."""
    signature, constants, attributes = {}, {}, {}
    constexprs = {p.name for p in kernel.params if p.is_constexpr}
    for index, name in enumerate(kernel.arg_names):
        value = values[name]
        divisible = False
        if name in constexprs or value is None or (isinstance(value, int) and value == 1):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], divisible = TYPES[value.dtype], True
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
            divisible = isinstance(value, int) and value % 16 == 0
        if divisible:
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constants, attributes)


def spilled(cubin: bytes) -> int | None:
    """Bytes per thread outside registers, None where Triton brings no cuobjdump."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tool, "-res-usage", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(int(n) for n in re.findall(r"(?:STACK|LOCAL):(\d+)", done.stdout))


def compiled(architecture: int, dtype: torch.dtype, *case: Any) -> list[dict[str, Any]]:
    rows = []
    for name, (kernel, values, options) in launches(architecture, dtype, *case).items():
        target = GPUTarget("cuda", architecture, 32)
        built = triton.compile(source(kernel, values), target, options)
        rows.append(
            {
                "architecture": architecture,
                "dtype": str(dtype).removeprefix("torch."),
                "case": case,
                "kernel": name,
                "mma": built.asm["ptx"].count("mma.sync"),
                "wgmma": built.asm["ptx"].count("wgmma.mma_async"),
                "shared": built.metadata.shared,
                "spilled": spilled(built.asm["cubin"]),
            }
        )
    return rows


if __name__ == "__main__":
    table = [
        row
        for architecture in map(int, sys.argv[1:])
        for dtype in TYPES
        for case in CASES
        for row in compiled(architecture, dtype, *case)
    ]
    print(json.dumps(table, indent=1))
