"""Decoding steps after contexts of different length."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.contenders import draw_raw, positions
from benchmarks.context import Context, Settings
from benchmarks.limits import count_work
from benchmarks.record import Found
from benchmarks.reference import build, check_decoding
from benchmarks.runner import Call, Case
from fairseq_plugins.attention import ATTENTIONS


def decoding(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Seconds per token of both attentions; ratios of the long context to the short."""
    runs, prepare, work = {}, {}, {}
    for attention in ATTENTIONS:
        check_decoding(attention, context)
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
) -> tuple[Callable[[], None], Call]:
    """Make two functions: restore the state after ``length`` tokens, and decode from it."""
    heads, dim, steps = settings["heads"], settings["head_dim"], settings["steps"]
    longest, encoding = length + steps + 1, settings["position_encoding"]
    attention = build(attention_type, encoding, heads, dim, context, max_positions=longest)
    given, new = (
        draw_raw((settings["batch"], heads, count, dim), context)[:3] for count in (length, 1)
    )
    where = [positions(1, context, length + i) for i in range(steps + 1)]
    with torch.no_grad():
        _, prompt = attention.step(*given, positions=positions(length, context))
    current: dict[str, Any] = {}

    @torch.no_grad()
    def prepare() -> None:
        # Copied, since a cache is written in place; the first step allocates room for more.
        copied = {name: tensor.clone() for name, tensor in prompt.items()}
        current["state"] = attention.step(*new, positions=where[0], state=copied)[1]

    @torch.no_grad()
    def run() -> object:
        state = current["state"]
        for position in where[1:]:
            output, state = attention.step(*new, positions=position, state=state)
        return output, state

    return prepare, run
