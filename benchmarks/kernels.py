"""Time and memory of causal attentions, relative to each other and by length."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import Tensor

from benchmarks.contenders import CONTENDERS, Attend, Shape, draw, forward_backward
from benchmarks.context import Context, Settings
from benchmarks.record import Found
from benchmarks.reference import check_contender
from benchmarks.runner import Case
from benchmarks.timing import Call

OURS = ("linear", "linear_encoded")
PARTS = ("forward", "forward+backward")


def available(
    names: Iterable[str], settings: Settings, context: Context, found: Found
) -> dict[str, Attend]:
    """Build and check the contenders; those that cannot run go to ``found.skipped``.

    Raises:
        Mismatch: this project's result is wrong.
    """
    result = {}
    for name in names:
        try:
            attend = CONTENDERS[name].build()
            check_contender(name, attend, settings["heads"], settings["head_dim"], context)
            result[name] = attend
        except Exception as error:  # another project may raise anything
            if not CONTENDERS[name].peer:
                raise
            found.skipped[name] = f"{type(error).__name__}: {error}"
            context.say(f"  {name} is left out: {found.skipped[name]}")
    return result


def causal(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Forward and backward of every contender at every length; ratios of ours to others."""
    for length, case in _by_length(settings, context, found):
        names = [key.partition("@")[0] for key in case.runs]
        pairs = [(ours, name) for ours in OURS for name in names if name not in OURS]
        ratios = {f"{a}/{b}@{length}": (f"{a}@{length}", f"{b}@{length}") for a, b in pairs}
        yield replace(case, ratios=ratios)


def figure(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Time and peak memory of forward and backward at each length."""
    for _, case in _by_length(settings, context, found):
        yield replace(case, memory={f"bytes {key}": run for key, run in case.runs.items()})


def scaling(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Forward and backward of ours at a long length, over a short one."""
    short, long = settings["lengths"]
    for name, attend in available(OURS, settings, context, found).items():
        runs = {f"{name}@{n}": _pass(name, attend, n, settings, context) for n in (short, long)}
        pair = (f"{name}@{long}", f"{name}@{short}")
        yield Case(runs, {"/".join(pair): pair})


def memory(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Extra peak memory in tensors of q's size, and its growth with the length."""
    wanted: dict[str, list[int]] = settings["contenders"]
    for name, attend in available(wanted, settings, context, found).items():
        for length in wanted[name]:
            tensors = _draw(name, length, settings, context)
            leaves = [tensor.clone().requires_grad_() for tensor in tensors[:3]]
            calls = (functools.partial(attend, *leaves), forward_backward(attend, tensors))
            keys = {part: f"{part} {name} bytes@{length}" for part in PARTS}
            yield Case(
                memory=dict(zip(keys.values(), calls, strict=True)),
                memory_ratios={
                    f"{part} {name}@{length}": (key, tensors[0].nbytes)
                    for part, key in keys.items()
                },
            )
        short, long, *_ = wanted[name]
        growth = {}
        for part in PARTS:
            pair = (f"{part} {name} bytes@{long}", f"{part} {name} bytes@{short}")
            growth[f"{part} {name} {short}->{long}"] = pair
        yield Case(memory_ratios=growth)


def _by_length(settings: Settings, context: Context, found: Found) -> Iterator[tuple[int, Case]]:
    """Yield each length, and the forward and backward passes of the contenders that have it."""
    wanted: dict[str, list[int]] = settings["contenders"]
    functions = available(wanted, settings, context, found)
    for length in sorted({n for lengths in wanted.values() for n in lengths}):
        keys = {name: f"{name}@{length}" for name in functions if length in wanted[name]}
        runs = {
            key: _pass(name, functions[name], length, settings, context)
            for name, key in keys.items()
        }
        work = {
            key: formula(_shape(length, settings))
            for name, key in keys.items()
            if (formula := CONTENDERS[name].work)
        }
        yield length, Case(runs, work=work)


def _pass(name: str, attend: Attend, length: int, settings: Settings, context: Context) -> Call:
    return forward_backward(attend, _draw(name, length, settings, context))


def _draw(name: str, length: int, settings: Settings, context: Context) -> list[Tensor]:
    return draw(CONTENDERS[name], _shape(length, settings), context)


def _shape(length: int, settings: Settings) -> Shape:
    return settings["batch"], settings["heads"], length, settings["head_dim"]
