"""Time and memory of causal attentions, relative to each other and by length."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from benchmarks.contenders import CONTENDERS, Attend, Shape, Unavailable, draw, forward_backward
from benchmarks.context import Context, Settings
from benchmarks.limits import Work, count_work, peak_settings
from benchmarks.memory import peak_bytes
from benchmarks.record import Found
from benchmarks.reference import check_contender
from benchmarks.timing import Pace, Samples, interleave

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
            check_contender(
                name,
                attend,
                heads=settings["heads"],
                dim=settings["head_dim"],
                device=context.device,
                dtype=context.dtype,
            )
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


def _passes(
    functions: Mapping[str, Attend],
    names: Sequence[str],
    length: int,
    settings: Settings,
    context: Context,
) -> dict[str, Any]:
    shape = _shape(length, settings)
    return {
        name: forward_backward(
            functions[name], draw(CONTENDERS[name], shape, context.device, context.dtype)
        )
        for name in names
        if name in functions
    }


def _each_length(
    settings: Settings, context: Context, found: Found
) -> Iterator[tuple[int, dict[str, Any], Samples]]:
    """Time the contenders at each length, and add medians and work to `found`."""
    wanted: dict[str, list[int]] = settings["contenders"]
    functions = available(list(wanted), settings, context, found)
    for length in sorted({n for lengths in wanted.values() for n in lengths}):
        names = [name for name in wanted if length in wanted[name]]
        passes = _passes(functions, names, length, settings, context)
        samples = interleave(passes, Pace(**settings["pace"]), context.device)
        found.add(samples, f"@{length}")
        for name, run in passes.items():
            found.work[f"{name}@{length}"] = _work(name, run, length, settings)
        yield length, passes, samples


def _shape(length: int, settings: Settings) -> Shape:
    return settings["batch"], settings["heads"], length, settings["head_dim"]


def _work(name: str, run: Callable[[], object], length: int, settings: Settings) -> Work:
    """Count the work of a forward and backward pass."""
    formula = CONTENDERS[name].work
    return formula(_shape(length, settings)) if formula else count_work(run)


def causal_settings(device: str, quick: bool) -> Settings:
    """Choose the lengths of each contender."""
    if device == "gpu":
        lengths = [64, 128] if quick else [2048, 4096, 8192]
        names = ["linear", "linear_encoded", "flash", "flash_linear_attention"]
        contenders = dict.fromkeys(names, lengths)
        return _sizes(device, quick, contenders=contenders)
    lengths = [64, 128] if quick else [512, 2048, 8192]
    contenders = dict.fromkeys((*OURS, "softmax"), lengths)
    contenders |= dict.fromkeys(("recurrent", "recurrent_native"), lengths)
    contenders |= {"fast_transformers": lengths, "flash_linear_attention": lengths}
    contenders |= {"masked": lengths[:2], "outer": lengths[:1]}
    return _sizes(device, quick, contenders=contenders)


def _sizes(device: str, quick: bool, **more: Any) -> Settings:
    """Choose sizes: a sequence of 8 heads on a CPU, 8 sequences of 16 on a GPU."""
    gpu = device == "gpu"
    pace = Pace(0.05, 2, 3) if quick else Pace(8.0, 5, 200)
    return {
        "batch": 8 if gpu else 1,
        "heads": 2 if quick else 16 if gpu else 8,
        "head_dim": 16 if quick else 64,
        "dtype": "bfloat16" if gpu else "float32",
        "pace": vars(pace),
        "peaks": peak_settings(device, quick),
        **more,
    }


def run_causal(settings: Settings, context: Context) -> Found:
    """Time forward and backward of every contender at every length; ratios of ours to others."""
    found = Found()
    for length, passes, samples in _each_length(settings, context, found):
        for ours in OURS:
            for other in passes:
                if other not in OURS:
                    ratios = samples.ratios(ours, other)
                    found.add_ratio(f"{ours}/{other}@{length}", ratios)
        times = ", ".join(f"{name} {1e3 * samples.median(name):.1f} ms" for name in passes)
        context.say(f"  length {length}: {times}")
    return found


def scaling_settings(device: str, quick: bool) -> Settings:
    """Choose two lengths, the second four times the first."""
    return _sizes(device, quick, lengths=[128, 512] if quick else [2048, 8192])


def run_scaling(settings: Settings, context: Context) -> Found:
    """Measure the ratio of ours at the long length to the short one."""
    found = Found()
    functions = available(OURS, settings, context, found)
    short, long = settings["lengths"]
    for name in functions:
        passes = {
            f"{name}@{n}": _passes(functions, [name], n, settings, context)[name]
            for n in (short, long)
        }
        samples = interleave(passes, Pace(**settings["pace"]), context.device)
        found.add(samples)
        for n in (short, long):
            found.work[f"{name}@{n}"] = _work(name, passes[f"{name}@{n}"], n, settings)
        key = f"{name}@{long}/{name}@{short}"
        found.add_ratio(key, samples.ratios(f"{name}@{long}", f"{name}@{short}"))
        context.say(f"  {key}: {found.ratios[key]:.2f}")
    return found


def memory_settings(device: str, quick: bool) -> Settings:
    """Choose lengths; softmax has only the first two, since longer ones take minutes."""
    lengths = [256, 1024] if quick else [2048, 8192, 32768]
    contenders = {**dict.fromkeys(OURS, lengths), "softmax": lengths[:2]}
    return _sizes(device, quick, contenders=contenders)


def run_memory(settings: Settings, context: Context) -> Found:
    """Measure extra peak memory in tensors of q's size, and its growth with the length."""
    found = Found()
    wanted: dict[str, list[int]] = settings["contenders"]
    functions = available(list(wanted), settings, context, found)
    for name in functions:
        first, second = wanted[name][:2]
        for length in wanted[name]:
            _add_peaks(found, name, functions[name], length, settings, context)
        for part in ("forward", "forward+backward"):
            growth = found.values[f"{part} {name} bytes@{second}"]
            growth /= max(found.values[f"{part} {name} bytes@{first}"], 1)
            found.ratios[f"{part} {name} {first}->{second}"] = round(growth, 4)
    return found


def _add_peaks(
    found: Found, name: str, attend: Attend, length: int, settings: Settings, context: Context
) -> None:
    shape = _shape(length, settings)
    tensors = draw(CONTENDERS[name], shape, context.device, context.dtype)
    leaves = [t.requires_grad_() for t in tensors[:3]]
    both = forward_backward(attend, tensors)
    both()  # warm-up: compiled kernels and workspaces
    unit = tensors[0].numel() * tensors[0].element_size()
    for part, run in (("forward", lambda: attend(*leaves)), ("forward+backward", both)):
        peak = peak_bytes(run, context.device)
        found.values[f"{part} {name} bytes@{length}"] = peak
        found.ratios[f"{part} {name}@{length}"] = round(peak / unit, 4)
    context.say(f"  {name}, length {length}: {peak / unit:.2f} tensors forward and backward")


def figure_settings(device: str, quick: bool) -> Settings:
    """Choose a single head on a CPU, so that softmax at 32k takes seconds."""
    lengths = [64, 128, 256] if quick else [512 * 2**i for i in range(7)]
    contenders = dict.fromkeys((*OURS, "softmax"), lengths)
    contenders["masked"] = [n for n in lengths if n <= 4096]
    sizes = _sizes(device, quick, contenders=contenders)
    pace = Pace(0.05, 2, 2) if quick else Pace(3.0, 3, 100)
    return {**sizes, "batch": 1, "heads": 8 if device == "gpu" else 1, "pace": vars(pace)}


def run_figure(settings: Settings, context: Context) -> Found:
    """Measure time and peak memory of forward and backward at each length."""
    found = Found()
    for length, passes, _ in _each_length(settings, context, found):
        for name, run in passes.items():
            found.values[f"bytes {name}@{length}"] = peak_bytes(run, context.device)
        context.say(f"  length {length}: done")
        if context.device.type == "cuda":
            torch.cuda.empty_cache()
    return found
