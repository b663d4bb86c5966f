"""Decoding steps after contexts of different length."""

from collections.abc import Callable, Iterator

import torch

from benchmarks.contenders import draw_raw, positions
from benchmarks.context import Context, Settings
from benchmarks.limits import count_work
from benchmarks.record import Found
from benchmarks.reference import build, check_decoding
from benchmarks.runner import Case
from benchmarks.timing import Call
from fairseq_plugins.attention import ATTENTIONS


def decoding(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Seconds per token of both attentions; ratios of contexts, and of attentions at the short."""
    starts, work = {}, {}
    for attention in ATTENTIONS:
        check_decoding(attention, context)
        for length in settings["contexts"]:
            name = f"{attention}@{length}"
            starts[name] = _decoder(attention, length, settings, context)
            # Counted in one step: tensors shared by several are read in each.
            one_step = _decoder(attention, length, {**settings, "steps": 1}, context)
            work[name] = count_work(one_step())
    short, long = settings["contexts"]
    pairs = [(f"{attention}@{long}", f"{attention}@{short}") for attention in ATTENTIONS]
    pairs.append((f"linear@{short}", f"vanilla@{short}"))
    ratios = {"/".join(pair): pair for pair in pairs}
    yield Case(starts=starts, ratios=ratios, steps=settings["steps"], work=work)


def _decoder(
    attention_type: str, length: int, settings: Settings, context: Context
) -> Callable[[], Call]:
    """Make a function that restores the state after ``length`` tokens, and returns the decoding."""
    heads, dim, steps = settings["heads"], settings["head_dim"], settings["steps"]
    longest, encoding = length + steps + 1, settings["position_encoding"]
    attention = build(attention_type, encoding, heads, dim, context, max_positions=longest)
    given, new = (
        draw_raw((settings["batch"], heads, count, dim), context)[:3] for count in (length, 1)
    )
    where = [positions(1, context, length + i) for i in range(steps + 1)]
    with torch.no_grad():
        _, prompt = attention.step(*given, positions=positions(length, context))

    @torch.no_grad()
    def start() -> Call:
        # Copied, since a cache is written in place; the first step allocates room for more.
        copied = {name: tensor.clone() for name, tensor in prompt.items()}
        restored = attention.step(*new, positions=where[0], state=copied)[1]

        @torch.no_grad()
        def run() -> object:
            state = restored
            for position in where[1:]:
                output, state = attention.step(*new, positions=position, state=state)
            return output, state

        return run

    return start
