"""Causal softmax attention with each additive bias, against attention without one."""

import os
from collections.abc import Iterator
from unittest import mock

from benchmarks.contenders import CONTENDERS, draw_raw, forward_backward, positions
from benchmarks.context import Context, Settings
from benchmarks.limits import Work
from benchmarks.record import Found
from benchmarks.reference import attend_at, build, check_attention
from benchmarks.runner import Case
from benchmarks.timing import Call
from fairseq_plugins.kernels.backend import FLEX

_CHECKED = 256  # tokens, two blocks of FlexAttention


def biases(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Time to that of attention without bias, and the growth of memory with the length.

    Forward and backward, with the gradients of the bias's parameters.
    """
    names, length = settings["encodings"], settings["length"]
    heads, dim, is_gpu = settings["heads"], settings["head_dim"], context.name == "gpu"

    def compute(name: str, length: int) -> Call:
        inputs = draw_raw((settings["batch"], heads, length, dim), context)
        if name in CONTENDERS:
            return forward_backward(CONTENDERS[name].build(), inputs)
        attention = build("vanilla", name, heads, dim, context, max_positions=length)
        attend = attend_at(attention, positions(length, context))
        return forward_backward(attend, inputs, [*attention.parameters()])

    plain = "flash" if is_gpu else "softmax"
    with mock.patch.dict(os.environ, {FLEX: "1"}):
        sizes = {"heads": heads, "dim": dim}
        check_attention("vanilla", context, encodings=names, lengths=[_CHECKED], **sizes)
        base = f"{plain}@{length}"
        runs = {f"{name}@{length}": compute(name, length) for name in (plain, *names)}
        unknown = Work(source="its kernel is compiled")
        work = {key: unknown for key in runs if is_gpu and key != base}
        yield Case(runs, {f"{n}/{base}": (f"{n}@{length}", base) for n in names}, work=work)
        for name in names:
            keys = {n: f"{name} bytes@{n}" for n in settings["memory_lengths"]}
            (short, first), (long, second) = keys.items()
            yield Case(
                memory={key: compute(name, n) for n, key in keys.items()},
                memory_ratios={f"memory {name} {short}->{long}": (second, first)},
            )
