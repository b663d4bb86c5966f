"""Decoding steps after contexts of different length."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.contenders import draw_raw
from benchmarks.context import Context, Settings
from benchmarks.limits import count_work
from benchmarks.record import Found
from benchmarks.reference import build, check_decoding
from benchmarks.runner import Case
from fairseq_plugins.attention import ATTENTIONS


def decoding(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Seconds per token of both attentions; ratios of the long context to the short."""
    runs, prepare, work = {}, {}, {}
    for attention in ATTENTIONS:
        check_decoding(attention, device=context.device, dtype=context.dtype)
        for length in settings["contexts"]:
            name = f"{attention}@{length}"
            # Counted in one step: tensors shared by several are read in each.
            restore, step = _decoder(attention, length, {**settings, "steps": 1}, context)
            restore()
            work[name] = count_work(step)
            prepare[name], runs[name] = _decoder(attention, length, settings, context)
    short, long = settings["contexts"]
    pairs = [(f"{attention}@{long}", f"{attention}@{short}") for attention in ATTENTIONS]
    ratios = {"/".join(pair): pair for pair in pairs}
    yield Case(runs, ratios, prepare, settings["steps"], work)


def _decoder(
    attention_type: str, length: int, settings: Settings, context: Context
) -> tuple[Callable[[], None], Callable[[], object]]:
    """Make two functions: restore the state after ``length`` tokens, and decode from it."""
    heads, dim, steps = settings["heads"], settings["head_dim"], settings["steps"]
    attention = build(
        attention_type,
        settings["position_encoding"],
        heads,
        dim,
        context.device,
        max_positions=length + steps + 1,
    )

    def tokens(count: int) -> list[torch.Tensor]:
        shape = (settings["batch"], heads, count, dim)
        return draw_raw(shape, context.device, context.dtype)[:3]

    def positions(first: int, count: int) -> torch.Tensor:
        return torch.arange(first, first + count, device=context.device).unsqueeze(0)

    new = tokens(1)
    step_positions = [positions(length + i, 1) for i in range(steps + 1)]
    with torch.no_grad():
        _, prompt = attention.step(*tokens(length), positions=positions(0, length))
    current: dict[str, Any] = {}

    @torch.no_grad()
    def prepare() -> None:
        # Copied, since a cache is written in place; the first step allocates room for more.
        copied = {name: tensor.clone() for name, tensor in prompt.items()}
        current["state"] = attention.step(*new, positions=step_positions[0], state=copied)[1]

    @torch.no_grad()
    def run() -> object:
        state = current["state"]
        for position in step_positions[1:]:
            output, state = attention.step(*new, positions=position, state=state)
        return output, state

    return prepare, run
