"""Progress of long work on standard error: a bar, or lines without a terminal."""

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # slow to import; --help stays fast
    from rich.console import Console

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
