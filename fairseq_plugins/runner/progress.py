"""Progress display: the state of each run, and estimates of the remaining time."""

import heapq
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from fairseq_plugins.records.logs import read_training

WAITING, PRETRAINING = "waiting", "pre-training"
TRAINING, EVALUATING = "training", "evaluating"
DONE, SKIPPED, FAILED = "done", "skipped", "failed"
FINISHED = (DONE, SKIPPED, FAILED)

PLAIN_INTERVAL = 10.0  # seconds between two lines of a run without a terminal
REDRAW_INTERVAL = 0.2  # seconds; every worker asks for it several times a second
_COLOURS = dict.fromkeys((PRETRAINING, TRAINING, EVALUATING), "yellow")
_COLOURS |= {DONE: "green", FAILED: "red"}


@dataclass
class RunStatus:
    """State of one run."""

    name: str
    state: str = WAITING
    updates: int = 0
    total: int = 0
    # Time and updates of the first report, from which its speed is measured, without the start-up.
    first: tuple[float, int] | None = None
    loss: float | None = None  # base 2
    note: str = ""
    began: float | None = None  # of the whole run
    ended: float | None = None  # of the whole run


def duration(seconds: float | None) -> str:
    """Format seconds: 75 -> "1:15"; "-" for None."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _LastingStream:
    """A stream whose full disk or closed terminal ends no training; a closed pipe ends all."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _without_disk_errors():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with _without_disk_errors():
            self._stream.flush()


@contextmanager
def _without_disk_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


class Progress:
    """Display of all runs: a table that is redrawn on a terminal, else lines.

    Use as a context manager. It starts no thread: `refresh` draws. The threads of `jobs` workers
    may report at the same time.
    """

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        jobs: int = 1,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title, self.jobs, self.clock = title, jobs, clock
        self.runs = {name: RunStatus(name) for name in names}
        self.deadline: float | None = None
        self._lock = threading.RLock()
        self._drawn = float("-inf")
        lasting = cast(TextIO, _LastingStream(stream or sys.stdout))
        self.console = Console(file=lasting, highlight=False, soft_wrap=True)
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
        """Print a message."""
        with self._lock:
            self.console.print(Text(text))

    def change(self, name: str, state: str, note: str = "") -> None:
        """Set the state of a run."""
        run = self.runs[name]
        with self._lock:
            run.state, run.note = state, note
            if state in FINISHED:
                run.ended = self.clock()
            elif run.began is None and state != PRETRAINING:
                run.began = self.clock()
            if self._live:
                self._draw(self._live)
            else:
                self._print(run)

    def begin_training(self, name: str, updates: int, total: int) -> None:
        """Report that a training begins, after `updates` of earlier processes."""
        run = self.runs[name]
        with self._lock:
            run.updates, run.total = updates, total
            run.first = run.loss = None  # a new training has another speed and loss
            self.change(name, TRAINING, f"resumed at {updates}" if updates else "")

    def train(self, name: str, updates: int, loss: float) -> None:
        """Report updates and loss of a training."""
        run = self.runs[name]
        with self._lock:
            run.updates, run.loss = updates, loss
            run.first = run.first or (self.clock(), updates)
            last = self._printed.get(name, float("-inf"))
            if not self._live and self.clock() - last >= PLAIN_INTERVAL:
                self._print(run)

    def follow(self, name: str, lines: Iterable[str]) -> None:
        """Report the updates that new lines of a training's log have, and redraw."""
        for measured in filter(None, map(read_training, lines)):
            self.train(name, measured.updates, measured.loss)
        self.refresh()

    def refresh(self) -> None:
        """Redraw on a terminal, unless that was just done."""
        with self._lock:
            if self._live and self.clock() - self._drawn >= REDRAW_INTERVAL:
                self._draw(self._live)

    def seconds_left(self, run: RunStatus) -> float | None:
        """Estimate the remaining seconds of a training from its speed in this process."""
        pace = self._pace(run)
        return None if run.state != TRAINING or pace is None else pace * (run.total - run.updates)

    def _pace(self, run: RunStatus) -> float | None:
        """Return the seconds per update."""
        if run.first is None or run.updates <= run.first[1]:
            return None
        return (self.clock() - run.first[0]) / (run.updates - run.first[1])

    def all_seconds_left(self) -> float | None:
        """Estimate the remaining seconds of all runs, at most those until the deadline if any.

        A waiting run begins when the first running one ends, and takes the mean of ended ones.
        """
        runs = self.runs.values()
        running = [run for run in runs if run.state in (TRAINING, EVALUATING)]
        waiting = sum(run.state in (WAITING, PRETRAINING) for run in runs)
        left = [self.seconds_left(run) or 0.0 for run in running]
        times = [
            run.ended - run.began
            for run in runs
            if run.state == DONE and run.began is not None and run.ended is not None
        ] or [t for run in running if (t := self._expected(run)) is not None]
        if waiting and not times:
            return None
        ends = [*left, *[0.0] * (self.jobs - len(left))]
        heapq.heapify(ends)
        for _ in range(waiting):
            heapq.heapreplace(ends, ends[0] + sum(times) / len(times))
        if self.deadline is None:
            return max(ends)
        return min(max(ends), max(0.0, self.deadline - self.clock()))

    def _expected(self, run: RunStatus) -> float | None:
        """Estimate the whole time of a training run, as if it had begun with its first update."""
        pace = self._pace(run)
        if pace is None or run.first is None or run.began is None:
            return None
        return run.first[0] - run.began + pace * run.total

    def cells(self, run: RunStatus) -> list[str]:
        """Return name, state, updates, training loss, time left and note."""
        updates = f"{run.updates}/{run.total}" if run.total else ""
        loss = f"{run.loss:.3g}" if run.loss is not None else ""
        left = self.seconds_left(run)
        return [run.name, run.state, updates, loss, duration(left) if left else "", run.note]

    def _draw(self, live: Live) -> None:
        self._drawn = self.clock()
        live.update(self._table(), refresh=True)

    def _print(self, run: RunStatus) -> None:
        self._printed[run.name] = self.clock()
        _, state, updates, loss, left, note = self.cells(run)
        parts = [f"{run.name}: {state}"]
        parts += [f"{updates} updates"] if state == TRAINING else []
        parts += [f"loss {loss}"] if loss and state == TRAINING else []
        parts += [f"{left} left"] if left else []
        parts += [note] if note else []
        remaining = self.all_seconds_left()
        if remaining and state not in FINISHED:
            parts.append(f"{duration(remaining)} left in all")
        self.say(", ".join(parts))

    def _table(self) -> RichTable:
        runs = list(self.runs.values())
        finished = sum(run.state in FINISHED for run in runs)
        left = duration(self.all_seconds_left())
        title = f"{self.title}: {finished} of {len(runs)} runs, {left} left"
        table = RichTable(title=Text(title), title_justify="left")
        for name in ("run", "state", "updates", "loss, base 2", "left", ""):
            table.add_column(name)
        for run in self._window(runs):
            table.add_row(*map(Text, self.cells(run)), style=_COLOURS.get(run.state))
        return table

    def _window(self, runs: list[RunStatus]) -> list[RunStatus]:
        """Return as many runs as fit on the screen, those nearest to running ones."""
        room = max(5, self.console.size.height - 7)
        active = [i for i, run in enumerate(runs) if run.state not in (WAITING, *FINISHED)]
        last = next((i for i, run in enumerate(runs) if run.state == WAITING), len(runs))
        centres = active or [last]
        nearest = sorted(range(len(runs)), key=lambda i: min(abs(i - c) for c in centres))
        return [runs[i] for i in sorted(nearest[:room])]
