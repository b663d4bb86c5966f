"""Checks before timing: outputs and gradients against plain formulas in float64."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.contenders import (
    CONTENDERS,
    Attend,
    draw,
    draw_raw,
    explicit_softmax,
    forward_backward,
    positions,
)
from benchmarks.context import Context
from fairseq_plugins.attention import build_attention
from fairseq_plugins.attention.base import Attention
from fairseq_plugins.attention.normalizers import EPSILON
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels import naive_linear_attention

# Tolerances relative to the largest value. Lengths with and without partial chunks; not shorter,
# since gradients of q and k then nearly cancel.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 5e-3}
LENGTHS = (19, 77, 256)


class Mismatch(Exception):
    """A result is wrong; the message has the tensor and its error."""


def compare(
    what: str, names: Sequence[str], found: Sequence[Tensor], right: Sequence[Tensor]
) -> None:
    """Compare tensors with their float64 references; raise Mismatch at the first wrong one."""
    for name, one, other in zip(names, found, right, strict=True):
        if one.shape != other.shape:
            raise Mismatch(f"{what}: {name} has shape {tuple(one.shape)}, not {tuple(other.shape)}")
        allowed = TOLERANCES[one.dtype]
        scale = max(other.abs().max().item(), 1e-6)
        error = (one.double() - other).abs().max().item() / scale
        if not error <= allowed:  # also true for NaN
            raise Mismatch(
                f"{what}: {name} is off by {error:.1e} of its largest value against the float64 "
                f"reference, where {allowed:.0e} is allowed"
            )


_NAMES = ("the output", "the gradient of q", "the gradient of k", "the gradient of v")


def check_pass(what: str, attend: Attend, formula: Attend, tensors: list[Tensor]) -> None:
    """Check an attention and its gradients of q, k, v for tensors of `draw`; raise Mismatch."""
    right = forward_backward(formula, [t.double() for t in tensors])()
    compare(what, _NAMES, forward_backward(attend, tensors)(), right)


def check_contender(name: str, attend: Attend, heads: int, dim: int, context: Context) -> None:
    """Check a causal attention and its gradients; raise Mismatch."""
    contender = CONTENDERS[name]
    for length in LENGTHS:
        tensors = draw(contender, (2, heads, length, dim), context)
        check_pass(f"{name}, length {length}", attend, contender.reference, tensors)


def check_attention(
    attention_type: str,
    context: Context,
    *,
    causal: bool = True,
    heads: int = 4,
    dim: int = 32,
    encodings: Sequence[str] = ("none", "rope"),
    lengths: Sequence[int] = LENGTHS,
) -> None:
    """Check an attention module and its gradients with encodings; raise Mismatch."""
    for name in encodings:
        attention = build(attention_type, name, heads, dim, context, causal=causal)
        for length in lengths:
            tensors, where = draw_raw((2, heads, length, dim), context), positions(length, context)
            what = f"{attention_type} attention with {name}, causal={causal}, length {length}"
            formula = _reference(attention, where, causal, context)
            check_pass(what, attend_at(attention, where), formula, tensors)


def check_decoding(attention_type: str, context: Context) -> None:
    """Check decoding token by token after a prompt, with RoPE; raise Mismatch."""
    heads, dim, prompt, length = 4, 32, 70, 80
    attention = build(attention_type, "rope", heads, dim, context)
    inputs, where = draw_raw((2, heads, length, dim), context)[:3], positions(length, context)
    right = _reference(attention, where, True, context)(*(t.double() for t in inputs))
    outputs, state = [], None
    with torch.no_grad():
        for rows in [slice(0, prompt), *(slice(t, t + 1) for t in range(prompt, length))]:
            parts = (t[:, :, rows] for t in inputs)
            output, state = attention.step(*parts, positions=where[:, rows], state=state)
            outputs.append(output)
    what = f"decoding with {attention_type} attention"
    compare(what, ["the output"], [torch.cat(outputs, 2)], [right])


def build(
    attention_type: str, name: str, heads: int, dim: int, context: Context, **more: Any
) -> Attention:
    """Build an attention module with an encoding, causal unless ``more`` says otherwise."""
    causal = more.setdefault("causal", True)
    sizes: dict[str, Any] = {"num_heads": heads, "head_dim": dim}
    encoding = None if name == "none" else build_encoding(name, **sizes, **more)
    return build_attention(attention_type, encoding, causal=causal, **sizes).to(context.device)


def attend_at(attention: Attention, where: Tensor) -> Attend:
    """Make a function of q, k and v alone from an attention module, at positions."""
    return lambda q, k, v: attention(q, k, v, q_positions=where, k_positions=where)[0]


def _reference(attention: Attention, where: Tensor, causal: bool, context: Context) -> Attend:
    """Make the attention in plain formulas, with its encoding in float64."""
    encoding = copy.deepcopy(attention.encoding)
    if encoding is not None:
        encoding = encoding.double()

    def encode(x: Tensor, hook: str) -> Tensor:
        return x if encoding is None else getattr(encoding, hook)(x, where)

    def rounded(x: Tensor) -> Tensor:
        # Rounded as for the kernel: else a denominator near its clamp might fall on the other
        # side, with another gradient.
        return x + (x.to(context.dtype).to(x.dtype) - x).detach()

    def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = rounded(F.elu(q) + 1), rounded(F.elu(k) + 1)
        q, k = rounded(encode(q, "transform_query")), rounded(encode(k, "transform_key"))
        epsilon = None if encoding is None else EPSILON
        return naive_linear_attention(q, k, v, epsilon=epsilon, causal=causal)

    def vanilla(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = encode(q, "transform_query"), encode(k, "transform_key")
        bias: Tensor | float = 0.0
        if encoding is not None and encoding.parts_with("attn_bias"):
            bias = encoding.attn_bias(where, where)
        scale = None if encoding is None else encoding.logit_scale()
        return explicit_softmax(q, k, v, bias=bias, causal=causal, scale=scale)

    return {"linear": linear, "vanilla": vanilla}[attention.name]
