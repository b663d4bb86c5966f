"""Time and memory of causal attentions, relative to each other and by length."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from benchmarks.contenders import CONTENDERS, Attend, Unavailable, draw, forward_backward
from benchmarks.context import Context, Settings
from benchmarks.record import Found
from benchmarks.reference import check_contender
from benchmarks.runner import Call, Case

OURS = ("linear", "linear_encoded")


def available(
    names: Sequence[str], settings: Settings, context: Context, found: Found
) -> dict[str, Attend]:
    """Build and check the contenders; those that cannot run go to ``found.skipped``.

    Raises:
        Mismatch: this project's result is wrong.
    """
    result = {}
    for name in names:
        contender = CONTENDERS[name]
        try:
            attend = contender.build()
            sizes = {"heads": settings["heads"], "dim": settings["head_dim"]}
            check_contender(name, attend, device=context.device, dtype=context.dtype, **sizes)
        except Unavailable as error:
            found.skipped[name] = str(error)
        except Exception as error:  # another project may raise anything
            if not contender.peer:
                raise
            found.skipped[name] = f"{type(error).__name__}: {error}"
        else:
            result[name] = attend
            continue
        context.say(f"  {name} is left out: {found.skipped[name]}")
    return result


def causal(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Forward and backward of every contender at every length; ratios of ours to others."""
    functions = available(list(settings["contenders"]), settings, context, found)
    for length, names in _by_length(settings, functions):
        others = [name for name in names if name not in OURS]
        pairs = [(f"{ours}/{other}@{length}", ours, other) for ours in OURS for other in others]
        ratios = {key: (f"{a}@{length}", f"{b}@{length}") for key, a, b in pairs}
        yield _turns([(name, length) for name in names], functions, settings, context, ratios)


def figure(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Time and peak memory of forward and backward at each length."""
    functions = available(list(settings["contenders"]), settings, context, found)
    for length, names in _by_length(settings, functions):
        case = _turns([(name, length) for name in names], functions, settings, context, {})
        yield Case(case.runs, memory={f"bytes {key}": run for key, run in case.runs.items()})


def scaling(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Forward and backward of ours at a long length, over a short one."""
    functions = available(OURS, settings, context, found)
    short, long = settings["lengths"]
    for name in functions:
        pair = (f"{name}@{long}", f"{name}@{short}")
        sizes = [(name, short), (name, long)]
        yield _turns(sizes, functions, settings, context, {"/".join(pair): pair})


def memory(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Extra peak memory in tensors of q's size, and its growth with the length."""
    wanted: dict[str, list[int]] = settings["contenders"]
    parts = ("forward", "forward+backward")
    for name, attend in available(list(wanted), settings, context, found).items():
        for length in wanted[name]:
            shape = (settings["batch"], settings["heads"], length, settings["head_dim"])
            tensors = draw(CONTENDERS[name], shape, context.device, context.dtype)
            both = forward_backward(attend, tensors)
            leaves = [t.requires_grad_() for t in tensors[:3]]
            calls: list[Call] = [lambda f=attend, x=leaves: f(*x), both]  # type: ignore[misc]
            yield Case(
                memory={f"{p} {name} bytes@{length}": c for p, c in zip(parts, calls, strict=True)},
                memory_ratios={
                    f"{p} {name}@{length}": (f"{p} {name} bytes@{length}", tensors[0].nbytes)
                    for p in parts
                },
            )
        short, long = next(pairwise(wanted[name]))
        keys = {p: (f"{p} {name} bytes@{long}", f"{p} {name} bytes@{short}") for p in parts}
        yield Case(memory_ratios={f"{p} {name} {short}->{long}": keys[p] for p in parts})


def _by_length(settings: Settings, names: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    wanted: dict[str, list[int]] = settings["contenders"]
    for length in sorted({n for lengths in wanted.values() for n in lengths}):
        yield length, [name for name in names if length in wanted[name]]


def _turns(
    sizes: Sequence[tuple[str, int]],
    functions: dict[str, Attend],
    settings: Settings,
    context: Context,
    ratios: dict[str, tuple[str, str]],
) -> Case:
    """Make a case of contenders at lengths, by keys such as ``linear@512``."""
    runs, work = {}, {}
    for name, length in sizes:
        key, contender = f"{name}@{length}", CONTENDERS[name]
        shape = (settings["batch"], settings["heads"], length, settings["head_dim"])
        tensors = draw(contender, shape, context.device, context.dtype)
        runs[key] = forward_backward(functions[name], tensors)
        if contender.work:
            work[key] = contender.work(shape)
    return Case(runs, ratios, work=work)
