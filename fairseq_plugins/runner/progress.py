"""What a table's runner shows while it works: a line per run, and the time that is left."""

import heapq
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable

WAITING, PRETRAINING = "waiting", "pre-training"
TRAINING, EVALUATING = "training", "evaluating"
DONE, SKIPPED, FAILED = "done", "skipped", "failed"
FINISHED = (DONE, SKIPPED, FAILED)

PLAIN_INTERVAL = 10.0  # seconds between two lines of a run without a terminal
REDRAW_INTERVAL = 0.2  # seconds; each of the runs at once asks for it several times a second
_COLOURS = {
    PRETRAINING: "yellow",
    TRAINING: "yellow",
    EVALUATING: "yellow",
    DONE: "green",
    FAILED: "red",
}


@dataclass
class Line:
    """One run's state.

    Attributes:
        loss: base 2.
        first: the time and the updates of its first news, from which its speed is taken: before it
            lies the start-up.
    """

    name: str
    state: str = WAITING
    updates: int = 0
    total: int = 0
    first: tuple[float, int] | None = None
    loss: float | None = None
    note: str = ""
    began: float | None = None
    ended: float | None = None


def duration(seconds: float | None) -> str:
    """Seconds as a clock: 75 -> "1:15"; "-" for None."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _last_end(left: Sequence[float], places: int, waiting: int, seconds: float) -> float:
    """When all is done: `left` for what runs, then `waiting` runs that take `seconds` each."""
    ends = [*left, *[0.0] * (places - len(left))]
    heapq.heapify(ends)
    for _ in range(waiting):
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)


class Board:
    """The lines of all runs, `jobs` of which go on at once, and the estimates made from them."""

    def __init__(
        self, names: Sequence[str], clock: Callable[[], float] = time.monotonic, jobs: int = 1
    ) -> None:
        self.lines = {name: Line(name) for name in names}
        self.clock, self.jobs = clock, jobs

    def seconds_left(self, line: Line) -> float | None:
        """Of a training run, by its own speed so far in this process."""
        pace = self._pace(line)
        if line.state != TRAINING or pace is None:
            return None
        return pace * (line.total - line.updates)

    def _pace(self, line: Line) -> float | None:
        """Seconds per update."""
        if line.first is None or line.updates <= line.first[1]:
            return None
        return (self.clock() - line.first[0]) / (line.updates - line.first[1])

    def table_seconds_left(self) -> float | None:
        """Of everything: what runs, and the waiting runs at the mean time of those before.

        Each of these begins where the first of those before it ends.
        """
        running = [line for line in self.lines.values() if line.state in (TRAINING, EVALUATING)]
        waiting = sum(line.state in (WAITING, PRETRAINING) for line in self.lines.values())
        left = [self.seconds_left(line) or 0.0 for line in running]
        times = [
            line.ended - line.began
            for line in self.lines.values()
            if line.state == DONE and line.began is not None and line.ended is not None
        ]
        if not times and waiting:
            times = [t for line in running if (t := self._expected(line)) is not None]
        if not waiting:
            return max(left, default=0.0)
        return _last_end(left, self.jobs, waiting, sum(times) / len(times)) if times else None

    def _expected(self, line: Line) -> float | None:
        """The whole time of a run that is training, as if it had begun at its first update."""
        pace = self._pace(line)
        if pace is None or line.first is None or line.began is None:
            return None
        return line.first[0] - line.began + pace * line.total

    def cells(self, line: Line) -> list[str]:
        """name, state, updates, perplexity, time left, note."""
        updates = f"{line.updates}/{line.total}" if line.total else ""
        ppl = f"{2**line.loss:.1f}" if line.loss is not None and line.loss < 1000 else ""
        left = self.seconds_left(line)
        return [line.name, line.state, updates, ppl, duration(left) if left else "", line.note]


class Progress:
    """Shows a board, on a terminal as a table that is redrawn, elsewhere as lines.

    Use as a context manager. Nothing here starts a thread: `refresh` draws. Runs at once, `jobs` of
    them, may tell their news from threads of their own.
    """

    def __init__(
        self, title: str, names: Sequence[str], jobs: int = 1, stream: TextIO | None = None
    ) -> None:
        self.title = title
        self.board = Board(names, jobs=jobs)
        self._lock = threading.RLock()
        self._drawn = float("-inf")
        self.console = Console(file=stream or sys.stdout, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._printed: dict[str, float] = {}

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                self._table(), console=self.console, auto_refresh=False, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A message that stays."""
        with self._lock:
            self.console.print(text, markup=False)

    def change(self, name: str, state: str, note: str = "") -> None:
        """A run enters a state."""
        line = self.board.lines[name]
        with self._lock:
            line.state, line.note = state, note
            if state in FINISHED:
                line.ended = self.board.clock()
            elif line.began is None and state != PRETRAINING:
                line.began = self.board.clock()
            if self._live:
                self._draw(self._live)
            else:
                self._print(line)

    def begin_training(self, name: str, updates: int, total: int) -> None:
        """A run trains, from `updates` that an earlier process made."""
        line = self.board.lines[name]
        with self._lock:
            line.updates, line.total = updates, total
            line.first = None  # its speed is not that of a training before it
            self.change(name, TRAINING, f"resumed at {updates}" if updates else "")

    def train(self, name: str, updates: int, loss: float) -> None:
        """News of a run that trains."""
        line = self.board.lines[name]
        with self._lock:
            line.updates, line.loss = updates, loss
            line.first = line.first or (self.board.clock(), updates)
            last = self._printed.get(name, float("-inf"))
            if not self._live and self.board.clock() - last >= PLAIN_INTERVAL:
                self._print(line)

    def refresh(self) -> None:
        """Draw again where there is a terminal, if it was not done just now."""
        with self._lock:
            if self._live and self.board.clock() - self._drawn >= REDRAW_INTERVAL:
                self._draw(self._live)

    def _draw(self, live: Live) -> None:
        self._drawn = self.board.clock()
        live.update(self._table(), refresh=True)

    def _print(self, line: Line) -> None:
        self._printed[line.name] = self.board.clock()
        _, state, updates, ppl, left, note = self.board.cells(line)
        parts = [f"{line.name}: {state}"]
        parts += [f"{updates} updates"] if state == TRAINING else []
        parts += [f"ppl {ppl}"] if ppl and state == TRAINING else []
        parts += [f"{left} left"] if left else []
        parts += [note] if note else []
        remaining = self.board.table_seconds_left()
        if remaining and state not in FINISHED:
            parts.append(f"table {duration(remaining)} left")
        self.say(", ".join(parts))

    def _table(self) -> RichTable:
        lines = list(self.board.lines.values())
        finished = sum(line.state in FINISHED for line in lines)
        left = duration(self.board.table_seconds_left())
        title = f"{self.title}: {finished} of {len(lines)} runs, {left} left"
        table = RichTable(title=title, title_justify="left")
        for name in ("run", "state", "updates", "train ppl", "left", ""):
            table.add_column(name)
        for line in self._window(lines):
            table.add_row(*self.board.cells(line), style=_COLOURS.get(line.state))
        return table

    def _window(self, lines: list[Line]) -> list[Line]:
        """As many lines as fit on the screen: those that run, and what is nearest to them."""
        room = max(5, self.console.size.height - 7)
        active = [i for i, line in enumerate(lines) if line.state not in (WAITING, *FINISHED)]
        last = next((i for i, line in enumerate(lines) if line.state == WAITING), len(lines))
        centres = active or [last]
        nearest = sorted(range(len(lines)), key=lambda i: min(abs(i - c) for c in centres))
        return [lines[i] for i in sorted(nearest[:room])]
