"""The token-recurrent C++ kernel as an autograd function, compiled on first use."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SOURCE = Path(__file__).with_name("recurrent.cpp")
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@functools.cache
def compile_recurrent(*flags: str) -> Attend:
    """Compile causal linear attention ``attend(q, k, v)`` with compiler flags.

    q, k: (B, H, T, D'), positive features; v: (B, H, T, M); float32 on a CPU.

    Raises:
        RuntimeError: there is no compiler, or it fails.
    """
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None:
        raise RuntimeError("no C++ compiler (c++, or the one that CXX names)")
    # Not cached: a build with -march=native need not run on another machine.
    with tempfile.TemporaryDirectory() as folder:
        unit, library = Path(folder) / "recurrent.o", Path(folder) / "recurrent.so"
        compiling = [compiler, *flags, "-fPIC", "-c", "-o", str(unit), str(_SOURCE)]
        # Linked without the flags: with -ffast-math, loading the library would make the whole
        # process flush denormals to zero.
        linking = [compiler, "-shared", "-o", str(library), str(unit)]
        for command in (compiling, linking):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"`{compiler}` failed: {done.stderr.strip()[-200:]}")
        functions = ctypes.CDLL(str(library))
    return lambda q, k, v: _Recurrent.apply(q, k, v, functions)


def _call(function: Any, tensors: list[Tensor], sizes: tuple[int, ...]) -> None:
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    function(*pointers, *(ctypes.c_long(size) for size in sizes))


class _Recurrent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, functions: ctypes.CDLL) -> Tensor:
        q, k, v = (t.contiguous() for t in (q, k, v))
        assert q.dtype == torch.float32 and q.device.type == "cpu"
        output, denominator = torch.empty_like(v), q.new_empty(q.shape[:3])
        ctx.sizes = (q.size(0) * q.size(1), q.size(2), q.size(3), v.size(3))
        _call(functions.recurrent_forward, [q, k, v, output, denominator], ctx.sizes)
        ctx.save_for_backward(q, k, v, output, denominator)
        ctx.functions = functions
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        saved = list(ctx.saved_tensors)
        grads = [torch.empty_like(t) for t in saved[:3]]
        tensors = [*saved, grad_output.contiguous(), *grads]
        _call(ctx.functions.recurrent_backward, tensors, ctx.sizes)
        return *grads, None
