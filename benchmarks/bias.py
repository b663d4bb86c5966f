"""Causal softmax attention with each additive bias, against attention without one."""

import copy
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.contenders import Attend, flash, forward_backward, softmax
from benchmarks.context import Context, Settings
from benchmarks.limits import Work, count_work, peak_settings
from benchmarks.memory import peak_bytes
from benchmarks.record import Found
from benchmarks.reference import compare
from benchmarks.timing import Pace, interleave
from fairseq_plugins.attention import Attention, build_attention
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.kernels.backend import FLEX

_CHECKED = 256  # tokens, two blocks of FlexAttention


def bias_settings(device: str, quick: bool) -> Settings:
    """Choose the biases, the length of their times, and the two lengths of their memory."""
    gpu = device == "gpu"
    names = ["alibi", "t5", "kerple_log", "kerple_power", "sandwich", "scalar", "fire"]
    names += ["tupe", "tupe_relative"]
    length = 64 if quick else 4096 if gpu else 512
    return {
        "batch": 4 if gpu else 1,
        "heads": 2 if quick else 16 if gpu else 8,
        "head_dim": 16 if quick else 64,
        "dtype": "bfloat16" if gpu else "float32",
        "encodings": names[:2] if quick else names,
        "length": length,
        "memory_lengths": [length, 2 * length],
        "pace": vars(Pace(0.05, 2, 3) if quick else Pace(8.0, 5, 100)),
        "peaks": peak_settings(device, quick),
    }


def run_bias(settings: Settings, context: Context) -> Found:
    """Measure time to that of attention without bias, and the growth of memory with the length.

    Forward and backward, with the gradients of the bias's parameters.
    """
    with mock.patch.dict(os.environ, {FLEX: "1"}):
        return _measured(settings, context)


def _measured(settings: Settings, context: Context) -> Found:
    found, length = Found(), settings["length"]
    other = "flash" if context.device.type == "cuda" else "softmax"
    passes = {other: _plain(flash if other == "flash" else softmax, length, settings, context)}
    for name in settings["encodings"]:
        _check(name, settings, context)
        passes[name] = _pass(name, length, settings, context)
    samples = interleave(passes, Pace(**settings["pace"]), context.device)
    found.add(samples, f"@{length}")
    for name, run in passes.items():
        is_compiled = name != other and context.device.type == "cuda"
        work = Work(source="its kernel is compiled") if is_compiled else count_work(run)
        found.work[f"{name}@{length}"] = work
    for name in settings["encodings"]:
        key = f"{name}/{other}@{length}"
        found.add_ratio(key, samples.ratios(name, other))
        _add_memory(found, name, settings, context)
        context.say(f"  {key}: {found.ratios[key]:.2f}")
    return found


def _add_memory(found: Found, name: str, settings: Settings, context: Context) -> None:
    """Add the peak bytes at both lengths and their ratio."""
    short, long = settings["memory_lengths"]
    for length in (short, long):
        run = _pass(name, length, settings, context)
        run()  # compiles kernels
        found.values[f"{name} bytes@{length}"] = peak_bytes(run, context.device)
    growth = found.values[f"{name} bytes@{long}"] / found.values[f"{name} bytes@{short}"]
    found.ratios[f"memory {name} {short}->{long}"] = round(growth, 4)


def _build(name: str, length: int, settings: Settings, context: Context) -> Attention:
    sizes = {"num_heads": settings["heads"], "head_dim": settings["head_dim"], "causal": True}
    encoding = build_encoding(name, max_positions=length, **sizes)
    return build_attention("vanilla", encoding, **sizes).to(context.device)


def _inputs(length: int, settings: Settings, context: Context, batch: int) -> list[Tensor]:
    """Draw q, k, v and the gradient of the output, (B, H, T, D) each."""
    shape = batch, settings["heads"], length, settings["head_dim"]
    return [torch.randn(shape, device=context.device).to(context.dtype) for _ in range(4)]


def _attend(attention: Attention, length: int, context: Context) -> Attend:
    at = Positions.of(None, length, context.device).index

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, q_positions=at, k_positions=at)[0]

    return attend


def _plain(
    attend: Attend, length: int, settings: Settings, context: Context
) -> Callable[[], object]:
    return forward_backward(attend, _inputs(length, settings, context, settings["batch"]))


def _pass(name: str, length: int, settings: Settings, context: Context) -> Callable[[], object]:
    """Make a function that computes the output and the gradients of inputs and parameters."""
    attention = _build(name, length, settings, context)
    *inputs, gradient = _inputs(length, settings, context, settings["batch"])
    attend = _attend(attention, length, context)
    leaves: list[Any] = [x.requires_grad_() for x in inputs]
    learned = list(attention.parameters())

    def run() -> tuple[Tensor, ...]:
        output = attend(*leaves)
        return output, *torch.autograd.grad(output, [*leaves, *learned], gradient)

    return run


def _check(name: str, settings: Settings, context: Context) -> None:
    """Check output and gradients against the formula in float64; raise Mismatch."""
    attention = _build(name, _CHECKED, settings, context)
    tensors = _inputs(_CHECKED, settings, context, 2)
    encoding = copy.deepcopy(attention.encoding)
    assert encoding is not None
    encoding, at = encoding.double(), Positions.of(None, _CHECKED, context.device).index
    future = torch.ones(_CHECKED, _CHECKED, dtype=torch.bool, device=context.device).triu(1)

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = q @ k.mT * encoding.logit_scale() + encoding.attn_bias(at, at)
        return logits.masked_fill(future, float("-inf")).softmax(-1) @ v

    right = forward_backward(formula, [t.double() for t in tensors])()
    actual = forward_backward(_attend(attention, _CHECKED, context), tensors)()
    names = ("the output", *(f"the gradient of {x}" for x in "qkv"))
    compare(f"softmax attention with {name}", names, actual, right)
