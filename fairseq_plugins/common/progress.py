"""Progress of long work over many things, on standard error: a bar, or lines where none can be."""

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # rich is imported where something is shown: --help must not load it
    from rich.console import Console

T = TypeVar("T")

REDRAWN_EVERY = 0.1  # seconds
PRINTED_EVERY = 30.0  # seconds between lines where there is no terminal, as in the log of a job


def track(
    items: Iterable[T], what: str, *, unit: str, total: int | None = None, lasting: bool = True
) -> Iterator[T]:
    """The items as they come, while the terminal shows how many came and how long it will take.

    Without a terminal there is a line every half a minute. No thread is started, so that the
    process can fork meanwhile.

    Args:
        items: passed on one by one.
        what: is being done, `encoding train`.
        unit: what the items are called, `lines`.
        total: how many items there are; None asks them, and they need not know.
        lasting: whether the bar stays on the screen when all is done.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if console.is_terminal:
        yield from _bar(console, items, what, unit, total, lasting)
    else:
        yield from _lines(console, items, what, unit, total)


def _bar(
    console: "Console", items: Iterable[T], what: str, unit: str, total: int | None, lasting: bool
) -> Iterator[T]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    drawn = time.monotonic()
    with Progress(*columns, console=console, auto_refresh=False, transient=not lasting) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(task)
            if time.monotonic() - drawn >= REDRAWN_EVERY:
                progress.refresh()
                drawn = time.monotonic()


def _lines(
    console: "Console", items: Iterable[T], what: str, unit: str, total: int | None
) -> Iterator[T]:
    begun = printed = time.monotonic()
    of = "" if total is None else f" of {total:,}"
    for number, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - printed >= PRINTED_EVERY:
            speed = number / (now - begun)
            text = f"{what}: {number:,}{of} {unit}, {speed:,.0f} a second"
            if total is not None:
                text += f", {(total - number) / speed:,.0f} s left"
            console.print(text, markup=False)
            printed = now
