"""Causal softmax attention with each additive bias, against attention without one."""

import os
from collections.abc import Iterator
from unittest import mock

import torch

from benchmarks.contenders import draw_raw, flash, forward_backward, softmax
from benchmarks.context import Context, Settings
from benchmarks.limits import Work
from benchmarks.record import Found
from benchmarks.reference import attend_at, build, check_attention
from benchmarks.runner import Call, Case
from fairseq_plugins.kernels.backend import FLEX

_CHECKED = 256  # tokens, two blocks of FlexAttention


def biases(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Time to that of attention without bias, and the growth of memory with the length.

    Forward and backward, with the gradients of the bias's parameters.
    """
    names, length = settings["encodings"], settings["length"]
    is_gpu = context.device.type == "cuda"
    other, plain = ("flash", flash) if is_gpu else ("softmax", softmax)
    base = f"{other}@{length}"
    with mock.patch.dict(os.environ, {FLEX: "1"}):
        check_attention(
            "vanilla",
            causal=True,
            device=context.device,
            dtype=context.dtype,
            heads=settings["heads"],
            dim=settings["head_dim"],
            encodings=names,
            lengths=(_CHECKED,),
        )
        runs: dict[str, Call] = {base: forward_backward(plain, _inputs(length, settings, context))}
        for name in names:
            runs[f"{name}@{length}"] = _pass(name, length, settings, context)
        unknown = Work(source="its kernel is compiled")
        work = {key: unknown for key in runs if is_gpu and key != base}
        yield Case(runs, {f"{n}/{base}": (f"{n}@{length}", base) for n in names}, work=work)
        for name in names:
            keys = {n: f"{name} bytes@{n}" for n in settings["memory_lengths"]}
            calls = {key: _pass(name, n, settings, context) for n, key in keys.items()}
            (short, first), (long, second) = keys.items()
            growth = {f"memory {name} {short}->{long}": (second, first)}
            yield Case(memory=calls, memory_ratios=growth)


def _inputs(length: int, settings: Settings, context: Context) -> list[torch.Tensor]:
    shape = settings["batch"], settings["heads"], length, settings["head_dim"]
    return draw_raw(shape, context.device, context.dtype)


def _pass(name: str, length: int, settings: Settings, context: Context) -> Call:
    """Make a function that computes the output and the gradients of inputs and parameters."""
    sizes = (settings["heads"], settings["head_dim"], context.device)
    attention = build("vanilla", name, *sizes, max_positions=length)
    positions = torch.arange(length, device=context.device).unsqueeze(0)
    learned = list(attention.parameters())
    inputs = _inputs(length, settings, context)
    return forward_backward(attend_at(attention, positions), inputs, learned)
