"""Attentions that are compared with each other: this project's, their plain forms, and peers.

Shapes: B batch, H heads, T tokens, D head_dim. All are causal and take q, k, v (B, H, T, D).
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.limits import Work
from benchmarks.recurrent import CompilerMissing, compile_recurrent
from fairseq_plugins.attention.feature_maps import elu_plus_one
from fairseq_plugins.attention.normalizers import MIN_COSINE
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels import causal_linear_attention, naive_linear_attention
from fairseq_plugins.kernels.naive import outer_product_linear_attention

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Shape = tuple[int, int, int, int]


class Unavailable(Exception):
    """A contender that cannot run here; the message says why."""


@dataclass(frozen=True)
class Contender:
    """An attention to be timed.

    Attributes:
        summary: what it is, for the page.
        build: gives the function; raises ``Unavailable``.
        reference: the same in plain formulas, for float64.
        features: what q and k are: ``raw``, ``positive`` as the feature map gives them, or
            ``encoded``, those turned by RoPE.
        peer: where it fails it is left out and named: another project's, or a kernel that not
            every GPU has.
        sequence_first: it works on (B, T, H, D), and gets views of tensors that lie so: a copy
            into its layout is no time of its own.
        work: of forward and backward at (B, H, T, D), where a kernel that is no operator of
            PyTorch cannot be counted.
    """

    summary: str
    build: Callable[[], Attend]
    reference: Attend
    features: str = "positive"
    peer: bool = False
    sequence_first: bool = False
    work: Callable[[Shape], Work] | None = None


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """This project's, positive denominators."""
    output = causal_linear_attention(q, k, v)
    assert isinstance(output, Tensor)
    return output


def linear_encoded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """This project's with encoded denominators, which are kept away from zero."""
    output = causal_linear_attention(q, k, v, min_cosine=MIN_COSINE)
    assert isinstance(output, Tensor)
    return output


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Linear attention through its masked T x T matrix."""
    weights = (q @ k.mT).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's own, causal; on a GPU whichever kernel it chooses."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's flash kernel and no other."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def explicit_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The formula as written."""
    logits = q @ k.mT * q.size(-1) ** -0.5
    future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return logits.masked_fill(future, float("-inf")).softmax(-1) @ v


def _recurrent(*flags: str) -> Attend:
    try:
        return compile_recurrent(*flags)
    except CompilerMissing as error:
        raise Unavailable(str(error)) from None


def _recurrent_work(shape: Shape) -> Work:
    """The loops of ``recurrent.cpp`` in float32: over the state twice forward, five times back.

    Tensors of q's size: q, k and v are read forward, these, the output and its gradient backward;
    the output and three gradients are written. A denominator per token is written and read.
    """
    batch, heads, length, dim = shape
    tokens = batch * heads * length
    return Work(14 * tokens * dim**2, 4 * tokens * (12 * dim + 2), "by a formula")


def _unknown_work(_: Shape) -> Work:
    return Work(source="its kernel is no operator of PyTorch")


def _import(module: str, package: str) -> object:
    try:
        return import_module(module)
    except Exception as error:  # a peer may fail in any way while it is imported
        reason = "not installed" if isinstance(error, ModuleNotFoundError) else repr(error)
        raise Unavailable(f"{package}: {reason}") from None


def _fast_transformers() -> Attend:
    module = _import("fast_transformers.causal_product", "pytorch-fast-transformers")
    product = module.causal_dot_product  # type: ignore[attr-defined]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        denominator = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)).unsqueeze(-1)
        return product(q, k, v) / denominator

    return attend


def _flash_linear_attention() -> Attend:
    module = _import("fla.ops.linear_attn", "flash-linear-attention")
    chunk = module.chunk_linear_attn  # type: ignore[attr-defined]
    # Older versions take (B, H, T, D) unless told otherwise, newer ones only (B, T, H, D).
    words = {"head_first": False} if "head_first" in inspect.signature(chunk).parameters else {}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        output: Tensor = chunk(q, k, v, scale=1.0, normalize=True, **words)[0]
        return output.transpose(1, 2)

    return attend


_naive = functools.partial(naive_linear_attention, causal=True)

CONTENDERS: dict[str, Contender] = {
    # Looked up when called, so that what is checked is what is timed.
    "linear": Contender("causal linear attention, positive denominators", lambda: linear, _naive),
    "linear_encoded": Contender(
        "causal linear attention, features turned by RoPE, denominators kept from zero",
        lambda: linear_encoded,
        functools.partial(_naive, min_cosine=MIN_COSINE),
        features="encoded",
    ),
    "softmax": Contender(
        "scaled_dot_product_attention, is_causal",
        lambda: softmax,
        explicit_softmax,
        features="raw",
    ),
    "flash": Contender(
        "scaled_dot_product_attention, is_causal, its flash kernel",
        lambda: flash,
        explicit_softmax,
        features="raw",
        peer=True,
    ),
    "masked": Contender("linear attention through the masked T x T matrix", lambda: masked, _naive),
    "outer": Contender(
        "linear attention through the cumulative sum of outer products",
        lambda: outer_product_linear_attention,
        _naive,
    ),
    "recurrent": Contender(
        "token-recurrent C++ kernel, -O3",
        functools.partial(_recurrent, "-O3"),
        _naive,
        work=_recurrent_work,
    ),
    "recurrent_native": Contender(
        "token-recurrent C++ kernel, -O3 -march=native -ffast-math",
        functools.partial(_recurrent, "-O3", "-march=native", "-ffast-math"),
        _naive,
        work=_recurrent_work,
    ),
    "fast_transformers": Contender(
        "causal_dot_product of pytorch-fast-transformers",
        _fast_transformers,
        _naive,
        peer=True,
        work=_unknown_work,
    ),
    "flash_linear_attention": Contender(
        "chunk_linear_attn of flash-linear-attention",
        _flash_linear_attention,
        _naive,
        peer=True,
        sequence_first=True,
        work=_unknown_work,
    ),
}


def draw(
    contender: Contender, shape: Shape, device: torch.device, dtype: torch.dtype
) -> list[Tensor]:
    """q, k and v (B, H, T, D) as the contender gets them, and a gradient of its output."""
    q, k, v, gradient = (torch.randn(shape, device=device) for _ in range(4))
    if contender.features != "raw":
        q, k = elu_plus_one(q), elu_plus_one(k)
    if contender.features == "encoded":
        _, heads, length, dim = shape
        rope = build_encoding(
            "rope", num_heads=heads, head_dim=dim, max_positions=length, causal=True
        ).to(device)
        positions = torch.arange(length, device=device).unsqueeze(0)
        q, k = rope.transform_query(q, positions), rope.transform_key(k, positions)
    tensors = [t.detach().to(dtype) for t in (q, k, v, gradient)]
    if contender.sequence_first:
        tensors = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    return tensors


def forward_backward(attend: Attend, tensors: list[Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    """One pass there and back: the output and the gradients of q, k and v."""
    *inputs, gradient = tensors
    leaves = [t.clone().requires_grad_() for t in inputs]

    def run() -> tuple[Tensor, ...]:
        output = attend(*leaves)
        return output, *torch.autograd.grad(output, leaves, gradient)

    return run
