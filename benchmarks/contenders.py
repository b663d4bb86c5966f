"""Attentions to compare: this project's, plain formulas, and other implementations.

Shapes: B batch, H heads, T tokens, D head_dim. All are causal and take q, k, v (B, H, T, D).
"""

import ctypes
import functools
import inspect
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.context import Context
from benchmarks.limits import Work
from fairseq_plugins.attention.feature_maps import elu_plus_one
from fairseq_plugins.attention.normalizers import MIN_COSINE
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention
from fairseq_plugins.kernels.naive import outer_product_linear_attention

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Shape = tuple[int, int, int, int]
_RECURRENT = Path(__file__).with_name("recurrent.cpp")


_naive = functools.partial(naive_linear_attention, causal=True)


@dataclass(frozen=True)
class Contender:
    """An attention to be timed.

    Attributes:
        summary: description for the page.
        build: imports or compiles what is needed, and returns the function.
        reference: plain formula, for float64.
        features: features of q and k: ``raw``, ``positive`` (feature map applied), or ``encoded``
            (positive and rotated by RoPE).
        peer: whether a failure skips it: another project's, or a kernel that not every machine has.
        sequence_first: whether it takes (B, T, H, D); inputs then have this memory layout, so
            that no copy is timed.
        work: computes the work of forward and backward at (B, H, T, D), for kernels that are not
            PyTorch operators.
    """

    summary: str
    build: Callable[[], Attend]
    reference: Attend = _naive
    features: str = "positive"
    peer: bool = False
    sequence_first: bool = False
    work: Callable[[Shape], Work] | None = None


def linear(q: Tensor, k: Tensor, v: Tensor, min_cosine: float = 0.0) -> Tensor:
    """Apply this project's kernel; encoded denominators are clamped away from zero."""
    output = causal_linear_attention(q, k, v, min_cosine=min_cosine)
    assert isinstance(output, Tensor)
    return output


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Apply linear attention through its masked T x T matrix."""
    weights = (q @ k.mT).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Apply PyTorch's causal attention with the kernel of its choice."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Apply PyTorch's flash kernel."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def explicit_softmax(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | float = 0.0,
    causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    """Apply the formula of softmax attention, with a bias (B or 1, H, T, T) on the logits.

    The products are scaled by 1/sqrt(D) unless an encoding says otherwise.
    """
    logits = q @ k.mT * (q.size(-1) ** -0.5 if scale is None else scale) + bias
    if causal:
        future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        logits = logits.masked_fill(future, float("-inf"))
    return logits.softmax(-1) @ v


def find_compiler() -> str | None:
    """Return the path of the C++ compiler, c++ or the one that CXX names; None without one."""
    return shutil.which(os.environ.get("CXX") or "c++")


@functools.cache
def compile_recurrent(*flags: str) -> Attend:
    """Compile the token-recurrent C++ kernel with compiler flags, once in a process.

    q, k: (B, H, T, D'), positive features; v: (B, H, T, M); float32 on a CPU.

    Raises:
        RuntimeError: there is no compiler, or it fails.
    """
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("no C++ compiler (c++, or the one that CXX names)")
    # Not cached: a build with -march=native need not run on another machine.
    with tempfile.TemporaryDirectory() as folder:
        unit, library = Path(folder) / "recurrent.o", Path(folder) / "recurrent.so"
        compiling = [compiler, *flags, "-fPIC", "-c", "-o", str(unit), str(_RECURRENT)]
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


def _recurrent_work(shape: Shape) -> Work:
    """Compute the work of ``recurrent.cpp`` in float32: 2 loops over the state forward, 5 back.

    Twelve tensors of q's size move: q, k, v read forward; these, output and its gradient read
    backward; output and three gradients written. A denominator per token is written and read.
    """
    batch, heads, length, dim = shape
    tokens = batch * heads * length
    return Work(14 * tokens * dim**2, 4 * tokens * (12 * dim + 2), "by a formula")


def _unknown_work(_: Shape) -> Work:
    return Work(source="its kernel is no operator of PyTorch")


def _fast_transformers() -> Attend:
    from fast_transformers import causal_product  # type: ignore[import-not-found]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        denominator = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)).unsqueeze(-1)
        return causal_product.causal_dot_product(q, k, v) / denominator

    return attend


def _flash_linear_attention() -> Attend:
    from fla.ops.linear_attn import chunk_linear_attn  # type: ignore[import-not-found]

    # Older versions take (B, H, T, D) by default, newer ones only (B, T, H, D).
    words = (
        {"head_first": False}
        if "head_first" in inspect.signature(chunk_linear_attn).parameters
        else {}
    )

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        output: Tensor = chunk_linear_attn(q, k, v, scale=1.0, normalize=True, **words)[0]
        return output.transpose(1, 2)

    return attend


CONTENDERS: dict[str, Contender] = {
    "linear": Contender("causal linear attention, positive denominators", lambda: linear),
    "linear_encoded": Contender(
        "causal linear attention, features rotated by RoPE, denominators with a floor",
        lambda: functools.partial(linear, min_cosine=MIN_COSINE),
        functools.partial(_naive, min_cosine=MIN_COSINE),
        features="encoded",
    ),
    "softmax": Contender(
        "scaled_dot_product_attention, is_causal", lambda: softmax, explicit_softmax, "raw"
    ),
    "flash": Contender(
        "scaled_dot_product_attention, is_causal, its flash kernel",
        lambda: flash,
        explicit_softmax,
        "raw",
        peer=True,
    ),
    "masked": Contender("linear attention through the masked T x T matrix", lambda: masked),
    "outer": Contender(
        "linear attention through the cumulative sum of outer products",
        lambda: outer_product_linear_attention,
    ),
    "recurrent": Contender(
        "token-recurrent C++ kernel, -O3",
        lambda: compile_recurrent("-O3"),
        peer=True,
        work=_recurrent_work,
    ),
    "recurrent_native": Contender(
        "token-recurrent C++ kernel, -O3 -march=native -ffast-math",
        lambda: compile_recurrent("-O3", "-march=native", "-ffast-math"),
        peer=True,
        work=_recurrent_work,
    ),
    "fast_transformers": Contender(
        "causal_dot_product of pytorch-fast-transformers",
        _fast_transformers,
        peer=True,
        work=_unknown_work,
    ),
    "flash_linear_attention": Contender(
        "chunk_linear_attn of flash-linear-attention",
        _flash_linear_attention,
        peer=True,
        sequence_first=True,
        work=_unknown_work,
    ),
}


def positions(length: int, context: Context, first: int = 0) -> Tensor:
    """Return the positions of tokens, (1, T)."""
    return torch.arange(first, first + length, device=context.device).unsqueeze(0)


def draw_raw(shape: Shape, context: Context) -> list[Tensor]:
    """Draw q, k, v and a gradient of the output, (B, H, T, D) each."""
    return [torch.randn(shape, device=context.device).to(context.dtype) for _ in range(4)]


def draw(contender: Contender, shape: Shape, context: Context) -> list[Tensor]:
    """Draw q, k and v (B, H, T, D) for a contender, and a gradient of its output."""
    q, k, v, gradient = (torch.randn(shape, device=context.device) for _ in range(4))
    if contender.features != "raw":
        q, k = elu_plus_one(q), elu_plus_one(k)
    if contender.features == "encoded":
        _, heads, length, dim = shape
        sizes: dict[str, Any] = {"num_heads": heads, "head_dim": dim, "max_positions": length}
        rope = build_encoding("rope", causal=True, **sizes).to(context.device)
        where = positions(length, context)
        q, k = rope.transform_query(q, where), rope.transform_key(k, where)
    tensors = [t.detach().to(context.dtype) for t in (q, k, v, gradient)]
    if contender.sequence_first:
        tensors = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    return tensors


def forward_backward(
    attend: Attend, tensors: list[Tensor], learned: Sequence[Tensor] = ()
) -> Callable[[], tuple[Tensor, ...]]:
    """Make a function that computes the output and the gradients of q, k, v and parameters."""
    *inputs, gradient = tensors
    leaves = [t.clone().requires_grad_() for t in inputs]

    def run() -> tuple[Tensor, ...]:
        output = attend(*leaves)
        return output, *torch.autograd.grad(output, [*leaves, *learned], gradient)

    return run
