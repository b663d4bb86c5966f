"""Decoding steps after contexts of different length."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.context import Context, Settings
from benchmarks.limits import Work, count_work, peak_settings
from benchmarks.record import Found
from benchmarks.reference import check_decoding
from benchmarks.timing import Pace, interleave
from fairseq_plugins.attention import ATTENTIONS, build_attention
from fairseq_plugins.encodings import build_encoding


def decoding_settings(device: str, quick: bool) -> Settings:
    """Choose sizes of an attention and two context lengths."""
    return {
        "batch": 1,
        "heads": 2 if quick else 8,
        "head_dim": 16 if quick else 64,
        "position_encoding": "rope",
        "contexts": [16, 64] if quick else [128, 8192],
        "steps": 2 if quick else 32,
        "dtype": "bfloat16" if device == "gpu" else "float32",
        "pace": vars(Pace(0.05, 2, 3) if quick else Pace(8.0, 10, 200)),
        "peaks": peak_settings(device, quick),
    }


def run_decoding(settings: Settings, context: Context) -> Found:
    """Measure seconds per token of both attentions; ratios of the long context to the short."""
    found = Found()
    runs, prepare = {}, {}
    for attention in ATTENTIONS:
        check_decoding(attention, device=context.device, dtype=context.dtype)
        for length in settings["contexts"]:
            name = f"{attention}@{length}"
            prepare[name], runs[name] = _decoder(attention, length, settings, context)
    with torch.no_grad():
        samples = interleave(runs, Pace(**settings["pace"]), context.device, prepare=prepare)
    steps = settings["steps"]
    found.add(samples)
    found.medians = {name: t / steps for name, t in found.medians.items()}
    for attention in ATTENTIONS:
        for length in settings["contexts"]:
            found.work[f"{attention}@{length}"] = _work(attention, length, settings, context)
    short, long = settings["contexts"]
    for attention in ATTENTIONS:
        pair = (f"{attention}@{long}", f"{attention}@{short}")
        found.add_ratio("/".join(pair), samples.ratios(*pair))
        context.say(f"  {'/'.join(pair)}: {found.ratios['/'.join(pair)]:.2f}")
    return found


def _work(attention: str, length: int, settings: Settings, context: Context) -> Work:
    """Count the work of a single step; tensors shared by several steps are read in each."""
    prepare, run = _decoder(attention, length, {**settings, "steps": 1}, context)
    with torch.no_grad():
        prepare()
        return count_work(run)


def _decoder(
    attention_type: str, length: int, settings: Settings, context: Context
) -> tuple[Callable[[], None], Callable[[], object]]:
    """Make two functions: restore the state after ``length`` tokens, and decode from it."""
    heads, dim, steps = settings["heads"], settings["head_dim"], settings["steps"]
    encoding = build_encoding(
        settings["position_encoding"],
        num_heads=heads,
        head_dim=dim,
        causal=True,
        max_positions=length + steps + 1,
    )
    attention = build_attention(
        attention_type, encoding, num_heads=heads, head_dim=dim, causal=True
    ).to(context.device)

    def tokens(count: int) -> list[torch.Tensor]:
        shape = (settings["batch"], heads, count, dim)
        return [torch.randn(shape, device=context.device).to(context.dtype) for _ in range(3)]

    def positions(first: int, count: int) -> torch.Tensor:
        return torch.arange(first, first + count, device=context.device).unsqueeze(0)

    new = tokens(1)
    step_positions = [positions(length + i, 1) for i in range(steps + 1)]
    with torch.no_grad():
        _, prompt = attention.step(*tokens(length), positions=positions(0, length))
    current: dict[str, Any] = {}

    def prepare() -> None:
        # Copied, since a cache is written in place; the first step allocates room for more.
        copied = {name: tensor.clone() for name, tensor in prompt.items()}
        current["state"] = attention.step(*new, positions=step_positions[0], state=copied)[1]

    def run() -> object:
        state = current["state"]
        for position in step_positions[1:]:
            output, state = attention.step(*new, positions=position, state=state)
        return output, state

    return prepare, run
