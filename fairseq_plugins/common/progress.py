"""Progress of long work on standard error: a bar, or lines without a terminal."""

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")

REDRAWN_EVERY = 0.1  # seconds between updates of the bar
PRINTED_EVERY = 30.0  # seconds between lines without a terminal


def track(
    items: Iterable[T], what: str, *, unit: str, total: int | None = None, lasting: bool = True
) -> Iterator[T]:
    """Yield items and show progress and remaining time.

    No thread is started, so that the process can fork meanwhile.

    Args:
        items: the items.
        what: name of the work, as `encoding train`.
        unit: name of the items, as `lines`.
        total: number of items; None for their own length, if any.
        lasting: whether the bar remains visible at the end.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if total is None and isinstance(items, Sized):
        total = len(items)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    is_bar = console.is_terminal
    begun = shown = time.monotonic()
    with Progress(
        *Progress.get_default_columns(),
        *(MofNCompleteColumn(), TextColumn(unit, markup=False), TimeElapsedColumn()),
        console=console,
        auto_refresh=False,
        transient=not lasting,
        disable=not is_bar,
    ) as bar:
        task = bar.add_task(escape(what), total=total)
        for number, item in enumerate(items, start=1):
            yield item
            bar.advance(task)
            now = time.monotonic()
            if now - shown < (REDRAWN_EVERY if is_bar else PRINTED_EVERY):
                continue
            shown = now
            bar.refresh()
            if not is_bar:
                speed = number / (now - begun)
                of = "" if total is None else f" of {total:,}"
                left = "" if total is None else f", {(total - number) / speed:,.0f} s left"
                text = f"{what}: {number:,}{of} {unit}, {speed:,.0f} a second{left}"
                console.print(text, markup=False)
